"""FedAvg, FedProx and FedYogi on scikit-learn's digits: the smallest benchmark there is.

Run it by ``python -m forager.benchmarks.quickstart``. A benchmark is a list of cells and a table
layout.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..tools.experiments.records import Cell
from ..tools.experiments.sweep import LOCAL_ENGINE
from .sweeps.command import benchmark_parser, run_benchmark
from .sweeps.measures import area, best, final, rounds_to, total_bytes
from .sweeps.plots import plot_curves
from .sweeps.tables import Column, difference_table, summary_table

STRATEGIES = ("fedavg", "fedprox", "fedyogi")
COLUMNS = (
    Column("final accuracy", final("accuracy")),
    Column("best accuracy", best("accuracy")),
    Column("area", area("accuracy"), ".2f"),
    Column("rounds to 0.8", rounds_to("accuracy", 0.8), ".1f"),
    Column("MB", total_bytes(), ".2f", scale=1e-6),
)


def cells(rounds: int) -> list[Cell]:
    """Return the runs to compare."""
    return [
        Cell(strategy, {"task": "digits", "strategy": strategy, "num-server-rounds": rounds})
        for strategy in STRATEGIES
    ]


def main(arguments: Sequence[str] | None = None, *, runner: str = LOCAL_ENGINE) -> int:
    """Run the sweep, print its tables and draw its curves; 1 if a run failed."""
    options = benchmark_parser("quickstart", __doc__, rounds=20, seeds=3).parse_args(arguments)
    results = run_benchmark(options, cells(options.rounds), runner=runner)
    print(summary_table(results, COLUMNS).markdown(), end="\n\n")
    print(difference_table(results, COLUMNS[:1], "fedavg").markdown(), end="\n\n")
    print("curves:", plot_curves(results, "accuracy", options.out.with_suffix(".svg")))
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
