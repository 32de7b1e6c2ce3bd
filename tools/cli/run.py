"""``forager run`` and ``forager resume``: train, on simulated clients or real nodes, or go on."""

import sys
from importlib.util import find_spec
from pathlib import Path

from typer import Exit, Option

from ...core.config import Scalar
from .options import (
    RunArgument,
    RunConfigOption,
    RunsOption,
    TrustOption,
    command,
    read_overrides,
    run_folder,
)

OWN_DATA: dict[str, Scalar] = {"data.client-test-share": 0.2, "fraction-evaluate": 1.0}
_INTERRUPTED = 130


@command(
    ("forager run -c \"strategy='cosage'\"", "by Flower's simulation"),
    ('forager run --local -c "num-clients=1000 clients-per-round=100"', "in one process"),
    ("forager run -c mine.toml -c seed=1", "keys from a file, one changed"),
)
def run(
    run_config: RunConfigOption = None,
    local: bool = Option(False, "--local", help="Run in this process: starts at once, no Flower."),
    cluster: str = Option(
        "", envvar="RAY_ADDRESS", help="Let Flower simulate the clients on this Ray cluster."
    ),
) -> None:
    """Train once; print a summary and where the report is.

    By default Flower simulates the clients, with the same apps as on real devices.
    """
    from ..flower.env import app_settings

    chosen = by_forager({**app_settings(), **read_overrides(run_config)})
    raise Exit(trained(judged_where_it_counts(chosen), local=local, cluster=cluster)[0])


def by_forager(overrides: dict[str, Scalar]) -> dict[str, Scalar]:
    """Choose the united strategy where the user chooses neither a strategy nor any of its parts.

    >>> by_forager({"strategy": "fedavg", "seed": 1})
    {'strategy': 'fedavg', 'seed': 1}
    >>> by_forager({"seed": 1})
    strategy = 'forager'; for another one: -c "strategy='fedavg'"
    {'seed': 1, 'strategy': 'forager'}
    """
    from ...core.methods.catalogue import AXES

    if overrides.keys() & {"strategy", *AXES}:
        return overrides
    print("strategy = 'forager'; for another one: -c \"strategy='fedavg'\"", flush=True)
    return {**overrides, "strategy": "forager"}


def judged_where_it_counts(overrides: dict[str, Scalar]) -> dict[str, Scalar]:
    """Have clients with models of their own hold out data to test them on, unless the user decides.

    The server's test data ask each model about everybody's data, which says little about it.
    """
    from ...core.config import default_config, read_config

    config = read_config({**default_config(), **overrides})
    if config.cohorts == "none" or config.privacy != "none" or overrides.keys() & OWN_DATA.keys():
        return overrides
    print(
        "Groups of clients may get their own models here. Clients hold out a fifth of their data to"
        "\ntest them (data.client-test-share=0.0 fraction-evaluate=0.0 turns this off).",
        flush=True,
    )
    return {**overrides, **OWN_DATA}


def trained(
    overrides: dict[str, Scalar], *, local: bool, cluster: str = ""
) -> tuple[int, Path | None]:
    """Train with these keys set; return the run's exit code and its folder."""
    from ..flower.env import app_folder
    from ..flower.plan import plan
    from ..trust import find_own_modules

    find_own_modules()
    folder, missing = app_folder(), ""
    if folder is None:
        missing = "this folder is not a Forager app (forager init creates one)"
    elif find_spec("ray") is None:
        missing = "Ray is not installed (pip install 'forager-fl[simulation]')"
    if missing and not local:
        print(f"{missing}: running in this process instead (--local)", file=sys.stderr)
    if folder is None or missing or local:
        return _in_this_process(overrides)
    from ...server_app.run_folder import new_name
    from ..flower.env import FLOWER_HOME, PROJECT
    from ..flower.run import launch

    home = FLOWER_HOME if folder == PROJECT else folder / ".flwr-home"
    planned = plan(overrides, folder, cluster)
    return launch(planned, home / "runs" / new_name(), folder), planned.folder


def _in_this_process(overrides: dict[str, Scalar]) -> tuple[int, Path]:
    from ...server_app.run_folder import RunFolder
    from ..engine.local import run_local
    from ..flower.env import command_name
    from ..flower.run import short, suggestions
    from ..report import summary_table
    from ..trust import trust_option

    result = run_local(overrides, quiet=False)
    print(f"\n{summary_table(RunFolder.open(result.folder))}")
    if result.reason == "interrupted":
        if any(result.folder.glob("checkpoints/*.safetensors")):
            trust = trust_option(overrides)
            print(f"\nTo continue: {command_name()} resume {short(result.folder)} --local{trust}")
        return _INTERRUPTED, result.folder
    print(f"\n{suggestions(overrides, result.folder)}")
    return 0, result.folder


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
