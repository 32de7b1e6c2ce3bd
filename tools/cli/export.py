"""``forager export``: the model of a run for other programs."""

from pathlib import Path

from typer import Argument, Option

from .options import BestOption, RunsOption, TrustOption, command, refused, run_folder


@command(
    ("forager export latest --onnx model.onnx", "of the newest run"),
    ("forager export runs/mine --onnx model.onnx --best", "of its best round"),
)
def export(
    run: str = Argument(..., help="A run's folder, or latest."),
    onnx: Path = Option(..., help="The ONNX file to write."),
    client: str = Option("", help="Use the model of this client's cohort."),
    cohort: str = Option("", help="A cohort with its own model."),
    best: BestOption = False,
    runs: RunsOption = Path("runs"),
    trust: TrustOption = False,
) -> None:
    """Write the model of a run as ONNX, by PyTorch's exporter; any number of samples at once."""
    from .. import predict as models
    from ..flower.env import app_settings
    from ..trust import find_own_modules

    if client and cohort:
        raise refused(f"--client {client}, --cohort {cohort}: give only one of the two")
    folder = run_folder(run, runs)
    cohort = models.cohort_of(folder, client) if client else cohort
    if trust or app_settings():
        find_own_modules()
    shape = models.write_onnx(folder, onnx, cohort=cohort, best=best, trust=trust)
    print(f"written: {onnx}, which reads x of shape (samples, {', '.join(map(str, shape))})")
