"""The command ``forager``. Commands import what they need when they run: help must be quick."""

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from .options import app as app

_COMMANDS = (
    *("run", "diagnose", "compare", "report", "predict"),
    *("demo", "methods", "init", "node", "doctor"),
)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            number = version("forager")
        except PackageNotFoundError:  # a checkout that was not installed
            from forager import __version__ as number
        typer.echo(f"forager {number}, flwr {version('flwr')}")
        raise typer.Exit


@app.callback()
def _common(
    wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print versions.")
    ] = False,
) -> None:
    pass


for _name in _COMMANDS:
    importlib.import_module(f"{__package__}.{_name}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="forager")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


def run() -> None:
    """Be the installed program."""
    sys.exit(main())
