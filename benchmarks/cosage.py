"""CosAge against the policies its paper compares it with.

``python -m benchmarks.cosage small --data features.npz`` runs the paper's small setting (10 clients
with 5 shards each, 2 chosen), ``large`` its large one (100 clients with 3 shards, 10 chosen),
``one-shard`` a harder one (100 clients with 1 shard, 10 chosen). Data are the features of a frozen
backbone (``python -m benchmarks.features``) or any other ``.npz`` file that a linear head can
learn.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import benchmark_parser, run_benchmark
from benchmarks.measures import area, at_round, jitter, total, total_bytes
from benchmarks.plots import plot_curves
from benchmarks.records import Cell
from benchmarks.sweep import LOCAL_ENGINE
from benchmarks.tables import Column, difference_table, summary_table
from server_app.config import Scalar

POLICIES = (
    "cosage",
    "aoi",
    "random",
    "dissimilarity",
    "dissimilarity-cooldown",
    "dissimilarity-sampling",
    "local-loss",
    "power-of-choice",
    "oort",
    "cluster-oracle",
    "all",
)
SETTINGS: dict[str, dict[str, Scalar]] = {
    "small": {"num-clients": 10, "split.shards-per-client": 5, "clients-per-round": 2},
    "large": {"num-clients": 100, "split.shards-per-client": 3, "clients-per-round": 10},
    "one-shard": {"num-clients": 100, "split.shards-per-client": 1, "clients-per-round": 10},
}
# Section IV: SGD of one epoch with momentum 0.9, learning rate 0.01, batches of 64; 10 % of the
# head sent
PAPER: dict[str, Scalar] = {
    "strategy": "cosage",
    "task": "npz",
    "model": "softmax",
    "partition": "shards",
    "learning-rate": 0.01,
    "momentum": 0.9,
    "batch-size": 64,
    "checkpoint.every": 0,
}
COLUMNS = (
    Column("round 10", at_round("accuracy", 10)),
    Column("round 30", at_round("accuracy", 30)),
    Column("round 60", at_round("accuracy", 60)),
    Column("area", area("accuracy"), ".2f"),
    Column("jitter", jitter("accuracy"), ".4f"),
    Column("MB", total_bytes(), ".1f", scale=1e-6),
    Column("MB selecting", total("bytes-select"), ".1f", scale=1e-6),
)


def cells(setting: str, data: Path, rounds: int) -> list[Cell]:
    """Return one run for each policy, and CosAge with half of the clients resting."""
    common = {
        **PAPER,
        **SETTINGS[setting],
        "data.path": str(data.resolve()),
        "num-server-rounds": rounds,
    }
    rest = {**common, "client-selector": "cosage", "cosage.silent-ratio": 0.5}
    return [
        *(Cell(policy, {**common, "client-selector": policy}) for policy in POLICIES),
        Cell("cosage, half resting", rest),
    ]


def main(arguments: Sequence[str] | None = None, *, runner: str = LOCAL_ENGINE) -> int:
    """Run the sweep, print its tables and draw its curves; 1 if a run failed."""
    parser = benchmark_parser("cosage", __doc__, rounds=60, seeds=5)
    parser.add_argument("setting", choices=list(SETTINGS))
    parser.add_argument("--data", type=Path, required=True, help="an .npz file of features")
    options = parser.parse_args(arguments)
    results = run_benchmark(
        options, cells(options.setting, options.data, options.rounds), runner=runner
    )
    print(summary_table(results, COLUMNS).markdown(), end="\n\n")
    print(difference_table(results, (COLUMNS[2], COLUMNS[3]), "cosage").markdown(), end="\n\n")
    print("curves:", plot_curves(results, "accuracy", options.out.with_suffix(".svg")))
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
