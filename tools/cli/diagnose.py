"""``forager diagnose``: what is wrong with a federation, and what to do about it."""

from pathlib import Path

from typer import Argument, Exit, Option

from ...core.config import Scalar
from .options import RunConfigOption, RunsOption, command, read_overrides, run_folder
from .run import OWN_DATA, trained

# Everyone trains on everything, the server learns quickly, clients tune a model of their own.
_EXAMINED: dict[str, Scalar] = {
    "data-selector": "examined",
    "client-selector": "all",
    "aggregator": "paced",
    "serving": "best",
}


@command(
    ("forager diagnose -c mine.toml --target 0.9", "simulated; --local in this process"),
    ("forager diagnose -c mine.toml --show", "the command that examines devices"),
    ("forager diagnose runs/examined", "what it found"),
)
def diagnose(
    run: str = Argument(
        "", metavar="[RUN]", help="The folder of an examined run; without it, a new run."
    ),
    run_config: RunConfigOption = None,
    rounds: int = Option(12, min=1, help="Rounds of the examination."),
    target: float | None = Option(
        None, help="Value of the main metric: how many rounds does it take?"
    ),
    local: bool = Option(False, "--local", help="Run in this process: starts at once, no Flower."),
    show: bool = Option(False, "--show", help="Only print the command that examines devices."),
    runs: RunsOption = Path("runs"),
) -> None:
    """Examine a federation for a few rounds; print what is wrong with it and what to do.

    No label leaves a client. diagnosis.html in the run's folder has the findings for each client.
    """
    from ...server_app.run_folder import RunFolder
    from ..diagnose.advice import diagnose as diagnosed
    from ..report.formatting import run_command

    code, folder = 0, run_folder(run, runs) if run else None
    if folder is None:
        overrides = examined(read_overrides(run_config), rounds)
        if show:
            print(run_command(overrides))
            return
        code, folder = trained(overrides, local=local)
    if code or folder is None:
        raise Exit(code)
    lines, page = diagnosed(RunFolder.open(folder), target)
    print("", *(f"{name:<16} {text}" for name, text in lines.items()), "", sep="\n")
    print(f"All clients: {page}")


def examined(overrides: dict[str, Scalar], rounds: int) -> dict[str, Scalar]:
    """Return the keys of a run that can be diagnosed; a strategy among those given has no say.

    >>> examined({"strategy": "ios", "seed": 1}, 3)["data-selector"]
    'examined'
    """
    from ...core.methods.catalogue import AXES

    dropped = {"strategy", "downlink", *AXES} - {"privacy", "weighting"}
    kept = {key: value for key, value in overrides.items() if key not in dropped}
    return {**OWN_DATA, **kept, **_EXAMINED, "num-server-rounds": rounds}
