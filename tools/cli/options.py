"""What several commands have in common."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand
from typer.utils import get_params_from_function

if TYPE_CHECKING:
    from ...core.config import Scalar

app = typer.Typer(
    name="forager",
    help="Decide, in every round of federated learning, who trains, on which data, and with whom.",
    epilog="Start with: forager demo ios, or forager run. Documentation: make docs.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click suggests, too
    context_settings={"help_option_names": ["-h", "--help"]},
)
Run = TypeVar("Run", bound=Callable[..., Any])
REFUSED = 2  # exit code of a command that was given something wrong

RunConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--run-config",
        "-c",
        metavar="'KEY=VALUE ...'",
        help="What differs from the defaults, as Flower reads it: text in quotes. May be repeated; "
        "later ones win. See: forager keys.",
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="[RUN]", help="A run's folder; the newest in runs/ by default.")
]
RunsOption = Annotated[Path, typer.Option("--runs", help="The folder that holds runs.")]
BestOption = Annotated[
    bool, typer.Option("--best", help="The model of the best round (best.safetensors).")
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Run code that the run's config.json names.")
]


class _Command(TyperCommand):
    """A command whose arguments keep their help texts: typer 0.20 loses them with click 8.5."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        assert self.callback is not None
        declared = get_params_from_function(self.callback)
        for param in self.params:
            if isinstance(param, TyperArgument):
                param.help = declared[str(param.name)].default.help


def command(*examples: tuple[str, str]) -> Callable[[Run], Run]:
    """Make a function a command whose help ends with what people type, and why."""
    shown = [f"[dim]# {why}[/dim]\n\n{line}" for line, why in examples]
    epilog = "\n\n".join(["[bold]Examples[/bold]", *shown])
    return lambda run: app.command(cls=_Command, epilog=epilog)(_errors_in_words()(run))


def refused(message: str) -> typer.Exit:
    """Say what is wrong; return the end of the command."""
    typer.echo(message, err=True)
    return typer.Exit(REFUSED)


def read_overrides(texts: Sequence[str] | None) -> dict[str, "Scalar"]:
    """Return the keys of all ``-c`` options, files and pairs in any order; later ones win."""
    from ...core.config.overrides import parse_overrides

    return {key: value for text in texts or [] for key, value in parse_overrides([text]).items()}


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """End with the message of an error that the user can do something about."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        # Imported only now: some of these bring torch along, and help must be quick.
        from ...core.config import ConfigError
        from ...core.tasks import TaskError
        from ...server_app.callbacks.checkpoint import CheckpointError
        from ...server_app.retries import RunFailed
        from ...server_app.run_folder import RunFolderError
        from ..experiments.records import SweepError

        words = ConfigError | TaskError | RunFolderError | CheckpointError | SweepError
        if isinstance(error, words):
            raise refused(str(error)) from None
        if isinstance(error, RunFailed):
            print(f"The run failed: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        raise


def run_folder(run: str, runs: Path) -> Path:
    """Return the folder of a run, by its path, its name below `runs`, or as "latest"."""
    from ...server_app.run_folder import RunFolderError
    from ..report.watch.follow import LATEST, events_file

    if run == LATEST:
        newest = events_file(LATEST, runs)
        if newest is None:
            raise RunFolderError(
                f"{runs}/ holds no run yet: start one with forager run, or name a run's folder"
            )
        return newest.parent
    for place in (Path(run), runs / run):
        if place.is_dir():
            return place
    known = sorted(path.parent.name for path in runs.glob("*/events.jsonl"))
    names = f"; {runs}/ has {', '.join(known[-5:])}" if known else ""
    raise RunFolderError(f"{run!r} is not the folder of a run{names}")
