"""``forager resume``: continue a run that was stopped."""

from pathlib import Path

from typer import Exit, Option

from .options import (
    RunArgument,
    RunConfigOption,
    RunsOption,
    TrustOption,
    command,
    read_overrides,
    run_folder,
)
from .run import trained


@command(
    ("forager resume", "the newest run in runs/, from its last checkpoint"),
    ("forager resume runs/mine -c num-server-rounds=50", "and make it longer"),
    ("forager resume runs/mine --best -c learning-rate=0.01", "a new run, from its best model"),
)
def resume(
    run: RunArgument = "latest",
    run_config: RunConfigOption = None,
    runs: RunsOption = Path("runs"),
    local: bool = Option(
        False, "--local", help="Continue in this process, even if Flower simulated the run."
    ),
    best: bool = Option(
        False, "--best", help="A new run that begins with its best model; settings may differ."
    ),
    trust: TrustOption = False,
) -> None:
    """Continue a run from its last checkpoint, with the same settings.

    At most the round in flight is lost. A run on devices is continued there, by flwr run.
    """
    from ...core.config import ConfigError
    from ...server_app.resume import DEVICES, LOCAL, RUNS_ON, is_model
    from ...server_app.run_folder import RunFolder
    from ..flower.env import app_settings, superlink_name
    from ..report.formatting import run_command
    from ..trust import check_trusted

    folder = run_folder(run, runs)
    where = folder / "best.safetensors" if best else folder
    if best and not is_model(str(where)):
        raise ConfigError(f"--best: {where} does not exist: the run was not evaluated yet")
    own = sorted(path.name for path in folder.glob("best-*.safetensors") if best)
    if own:
        raise ConfigError(
            f"--best: the cohorts of {folder} have models of their own ({', '.join(own)}), and a "
            "run begins with one. Without --best it continues with all of them"
        )
    if not best and not any(folder.glob("checkpoints/*.safetensors")):
        raise ConfigError(
            f"{folder} has no checkpoint to resume from: it was stopped before its first round "
            "ended, or checkpoint.every was 0. Start it again with forager run"
        )
    asked = read_overrides(run_config)
    config = RunFolder(folder).read_config()
    saved, here = config.get("overrides", {}), app_settings()
    # What the app in this folder sets otherwise, the run may have had by default.
    same = {key: config[key] for key in here if config.get(key, here[key]) != here[key]}
    same |= {key: value for key, value in saved.items() if key != "output-dir"}
    if best:
        same.pop("run-name", None)  # it is another run
    if config.get(RUNS_ON) == DEVICES:
        there = {key: value for key, value in same.items() if here.get(key) != value}
        there |= {**asked, "resume-from": str(where.resolve())}
        raise ConfigError(
            f"{folder} is a run on devices, and forager resume would simulate their clients. "
            "To continue it there, with the name of its SuperLink:\n  "
            + run_command(there, f"flwr run . {superlink_name()} --stream")
        )
    check_trusted(folder, {k: v for k, v in same.items() if k not in asked}, trust)
    local = local or config.get(RUNS_ON) == LOCAL
    raise Exit(trained({**same, **asked, "resume-from": str(where)}, local=local)[0])
