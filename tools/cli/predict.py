"""``forager predict`` and ``forager export``: what a run's model says of new data; the model."""

from pathlib import Path

from typer import Argument, Option

from .options import BestOption, RunsOption, TrustOption, command, refused, run_folder

_NAMES = ("x", "x_test", "x_train")  # of inputs in a file, the first that it has
_WRITE = "write the inputs with numpy.savez('new.npz', x=inputs), and y=targets for metrics"


@command(
    ("forager predict latest new.npz", "with the newest run; new.npz holds x"),
    ("forager predict runs/mine new.npz --best --out answers.npz", "by the best round's model"),
    ("forager predict runs/mine new.npz --client clinic-05", "the model of its cohort"),
)
def predict(
    run: str = Argument(..., help="A run's folder, or latest."),
    data: Path = Argument(
        ..., help="An .npz file with x (or x_test); with y (or y_test), metrics are printed."
    ),
    out: Path | None = Option(None, help="An .npz file to write predictions and scores to."),
    client: str = Option("", help="Use the model of this client's cohort."),
    cohort: str = Option("", help="A cohort with its own model."),
    best: BestOption = False,
    runs: RunsOption = Path("runs"),
    trust: TrustOption = False,
) -> None:
    """Predict new samples with model.safetensors of a run."""
    import zipfile

    import numpy as np

    from ...core.tasks.metrics import label, written
    from ...core.tasks.problems import Classification
    from .. import predict as models
    from ..flower.env import app_settings
    from ..trust import find_own_modules

    if client and cohort:
        raise refused(f"--client {client}, --cohort {cohort}: give only one of the two")
    try:
        with np.load(data) as file:
            arrays = dict(file)
    except FileNotFoundError:
        raise refused(f"{data}: there is no such file") from None
    except (OSError, TypeError, ValueError, zipfile.BadZipFile):
        raise refused(f"{data}: not an .npz file; {_WRITE}") from None
    name = next((name for name in _NAMES if name in arrays), "")
    if not name:
        raise refused(f"{data}: holds {', '.join(arrays) or 'nothing'}; {_WRITE}")
    folder = run_folder(run, runs)
    if trust or app_settings():
        find_own_modules()
    task = models.task_of_run(folder, trust=trust)
    problem = task.problem if task else Classification()
    inputs = models.model_inputs(arrays[name], str(data), tokens=problem.tokens)
    if client:
        cohort = models.cohort_of(folder, client)
        print(f"client {client}: {f'model of cohort {cohort}' if cohort else 'the global model'}")
    elif not cohort and models.cohorts_with_models(folder):
        named = ", ".join(models.cohorts_with_models(folder))
        print(f"This is the global model; cohorts {named} have their own (--client, --cohort).")
    if models.is_tuned(folder):
        print("Clients tune this model on their own data before use; this is the model as sent.")
    model = models.load_model(folder, inputs.shape[1:], cohort=cohort, best=best, trust=trust)
    answers = models.predict(model, inputs, problem)
    targets = arrays.get(name.replace("x", "y"))
    found = {} if targets is None else models.scored(model, inputs, targets, task)
    if problem.has_classes:
        counts = models.class_counts(answers[0])
        print(f"{len(inputs)} samples; predicted, by class: {counts}")
    else:
        each = " x ".join(map(str, answers[0].shape[1:])) or "1"
        print(f"{len(inputs)} samples ({problem.kind}); outputs per sample: {each}")
    for metric, value in found.items():
        print(f"{label(metric)}: {written(metric, value)}")
    if out is not None:
        kept = dict(zip(models.columns(problem), answers, strict=False))
        np.savez(out, allow_pickle=False, **kept)
        print(f"written: {out} with {', '.join(kept)}")


@command(
    ("forager export latest --onnx model.onnx", "of the newest run"),
    ("forager export runs/mine --onnx model.onnx --best", "of its best round"),
)
def export(
    run: str = Argument(..., help="A run's folder, or latest."),
    onnx: Path = Option(..., help="The ONNX file to write."),
    cohort: str = Option("", help="A cohort with its own model."),
    best: BestOption = False,
    runs: RunsOption = Path("runs"),
    trust: TrustOption = False,
) -> None:
    """Write the model of a run as ONNX, by PyTorch's exporter; any number of samples at once."""
    from .. import predict as models
    from ..flower.env import app_settings
    from ..trust import find_own_modules

    folder = run_folder(run, runs)
    if trust or app_settings():
        find_own_modules()
    shape = models.write_onnx(folder, onnx, cohort=cohort, best=best, trust=trust)
    print(f"written: {onnx}, which reads x of shape (samples, {', '.join(map(str, shape))})")
