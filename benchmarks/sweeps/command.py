"""The command line that all benchmarks share: ``python -m benchmarks.<name>``."""

from __future__ import annotations

import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

from ...tools.experiments.records import Cell, SweepError
from ...tools.experiments.results import Results
from ...tools.experiments.sweep import LOCAL_ENGINE, sweep


def benchmark_parser(
    name: str, description: str | None, *, rounds: int, seeds: int
) -> ArgumentParser:
    """Make a parser with the options that every benchmark has; add your own to it.

    Parameters
    ----------
    name : str
        The benchmark's name, as in ``python -m benchmarks.<name>``.
    description : str, optional
        What it measures, for ``--help``.
    rounds, seeds : int
        How many of each by default.
    """
    parser = ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(name=name)
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds of every run")
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds: 0, 1, 2, ...")
    parser.add_argument("--processes", type=int, help="runs at the same time; None: all cores")
    parser.add_argument(
        "--out", type=Path, default=Path("sweeps") / f"{name}.jsonl", help="the sweep file"
    )
    parser.add_argument(
        "--cluster", help="run on this Ray cluster; None: RAY_ADDRESS, if it is set"
    )
    parser.add_argument("--keep-runs", type=Path, help="keep the runs' own folders in this one")
    return parser


def run_benchmark(
    options: Namespace,
    cells: Iterable[Cell],
    *,
    runner: str = LOCAL_ENGINE,
    first_seed: int = 0,
) -> Results:
    """Run the cells as the options say; a wrong option or Ctrl-C ends the program with a message.

    Parameters
    ----------
    options : Namespace
        What the parser of `benchmark_parser` read.
    cells : iterable of Cell
        What to run.
    runner : str
        What runs one config, as ``module:function``.
    first_seed : int (default: 0)
        Where the seeds begin.
    """
    try:
        return sweep(
            options.name,
            cells,
            range(first_seed, first_seed + options.seeds),
            path=options.out,
            processes=options.processes,
            runner=runner,
            keep_runs=options.keep_runs,
            cluster=options.cluster,
        )
    except SweepError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(f"stopped; the same command continues from {options.out}", file=sys.stderr)
        raise SystemExit(130) from None
