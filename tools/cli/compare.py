"""``forager compare``: which strategy fits my data."""

from pathlib import Path
from typing import Annotated

import typer

from .options import RunConfigOption, examples


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            ("forager compare", "all strategies on digits"),
            (
                "forager compare fedavg cosage -c \"task='npz' data.path='mine.npz'\"",
                "two, on mine",
            ),
            ("forager compare fedavg \"oldest: client-selector='aoi'\"", "one of your own"),
        )
    )(compare)


def compare(
    strategies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Presets, or your own as \"name: client-selector='aoi' ...\"; all by default.",
        ),
    ] = None,
    run_config: RunConfigOption = None,
    seeds: Annotated[int, typer.Option(help="Runs of each: seeds 0, 1, 2, ...")] = 5,
    budget: Annotated[
        str,
        typer.Option(help="What a run may spend: rounds, bytes (20MB) or simulated time (10min)."),
    ] = "60 rounds",
    goal: Annotated[
        str | None,
        typer.Option(help="Whose accuracy decides: server (its test data) or clients (their own)."),
    ] = None,
    to_the_end: Annotated[
        bool,
        typer.Option("--to-the-end", help="Give every strategy the whole budget, drop none early."),
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="Runs side by side; one per core by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; comparisons/<task> by default.")
    ] = None,
) -> None:
    """Run strategies under equal conditions, and say in words which one to use.

    Differences are paired over seeds and have 95 % intervals. Hopeless ones are stopped early.
    """
    from ..experiments.compare.command import main
    from ..trust import find_own_modules

    find_own_modules()
    arguments = [part for text in run_config or [] for part in ("-c", text)]
    arguments += ["--strategies", *(strategies or ["all"])]
    arguments += ["--seeds", str(seeds), "--budget", budget]
    for name, value in (("--goal", goal), ("--processes", processes), ("--out", out)):
        arguments += [name, str(value)] if value is not None else []
    arguments += ["--to-the-end"] if to_the_end else []
    raise typer.Exit(main(arguments))
