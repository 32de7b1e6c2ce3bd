"""CosAge against the policies its paper compares it with, and against variants of itself.

``python -m forager.benchmarks.cosage small --data features.npz`` runs the paper's small setting (10
clients with 5 shards each, 2 chosen), ``large`` its large one (100 clients with 3 shards, 10
chosen), ``one-shard`` a harder one (100 clients with 1 shard of Fashion-MNIST, 10 chosen).
``digits-1`` and ``digits-3`` have 100 clients with 1 or 3 shards of the digits, and ``--steps`` of
local work, as many as matter: a proxy of little work tells little.
``variants`` tries other ways to spend CosAge's bytes: of the large setting if there is ``--data``,
else of the harder one. Data are the features of a frozen backbone (``python -m
forager.benchmarks.features``) or any other ``.npz`` file that a linear head can learn.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ..core.config import Scalar
from ..tools.experiments.records import Cell
from .sweeps.command import benchmark_parser, run_benchmark
from .sweeps.measures import area, at_round, jitter, last_mean, total, total_bytes
from .sweeps.plots import plot_curves
from .sweeps.tables import Column, difference_table, summary_table
from .worst_class import RUNNER

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
    "one-shard": {
        "task": "fashion-mnist",
        "num-clients": 100,
        "split.shards-per-client": 1,
        "clients-per-round": 10,
    },
    **{
        f"digits-{shards}": {
            "task": "digits",
            "num-clients": 100,
            "split.shards-per-client": shards,
            "clients-per-round": 10,
            "batch-size": 8,
            "learning-rate": 0.05,
        }
        for shards in (1, 3)
    },
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
PIGGYBACK: dict[str, Scalar] = {"summary.mode": "piggyback"}
VARIANTS: dict[str, dict[str, Scalar]] = {
    "cosage": {},
    "aoi": {"client-selector": "aoi"},
    "piggyback": PIGGYBACK,
    "p = 2": {"summary.power": 2.0},
    "p = 8": {"summary.power": 8.0},
    "printed form": {"summary.form": "printed"},
    "half resting": {"cosage.silent-ratio": 0.5},
    "30 asked": {"summary.ask-at-most": 30},
    "error feedback": {"uplink": "top-k"},
}


COLUMNS = (
    Column("round 10", at_round("accuracy", 10)),
    Column("round 30", at_round("accuracy", 30)),
    Column("round 60", at_round("accuracy", 60)),
    Column("area", area("accuracy"), ".2f"),
    Column("jitter", jitter("accuracy"), ".4f"),
    Column("worst class", last_mean("worst-class", 10)),
    Column("MB", total_bytes(), ".1f", scale=1e-6),
    Column("MB up", total("bytes-up"), ".2f", scale=1e-6),
    Column("MB down for training", total("bytes-down"), ".2f", scale=1e-6),
    Column("MB selecting", total("bytes-select"), ".1f", scale=1e-6),
)
COMPARED = COLUMNS[2:6]
# More curves than these hide each other.
DRAWN: tuple[str, ...] = ("cosage", "aoi", "random", "dissimilarity", "cluster-oracle", "all")
DRAWN_VARIANTS: tuple[str, ...] = ("cosage", "aoi", "piggyback", "30 asked")


def cells(setting: str, data: Path | None, rounds: int) -> list[Cell]:
    """Return one run for each policy, and CosAge with half of the clients resting."""
    common = {**PAPER, **SETTINGS[setting], "num-server-rounds": rounds}
    if data is not None:
        common |= {"task": "npz", "data.path": str(data.resolve())}
    cosage: dict[str, Scalar] = {**common, "client-selector": "cosage"}
    return [
        *(Cell(policy, {**common, "client-selector": policy}) for policy in POLICIES),
        Cell("cosage, half resting", {**cosage, "cosage.silent-ratio": 0.5}),
        Cell("cosage, 30 asked", {**cosage, "summary.ask-at-most": 30}),
    ]


def variants(data: Path | None, rounds: int) -> list[Cell]:
    """Return CosAge and what else can be done with its bytes."""
    cosage = cells("large" if data else "one-shard", data, rounds)[0].config
    return [Cell(name, {**cosage, **changes}) for name, changes in VARIANTS.items()]


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Run the sweep, print its tables and draw its curves; 1 if a run failed."""
    parser = benchmark_parser("cosage", __doc__, rounds=60, seeds=5)
    parser.add_argument("setting", choices=[*SETTINGS, "variants"])
    parser.add_argument("--data", type=Path, help="an .npz file of features")
    parser.add_argument("--steps", type=int, help="local steps; one epoch if not said")
    parser.add_argument("--only", nargs="+", help="only the runs of these names")
    options = parser.parse_args(arguments)
    if options.data is None and options.setting in ("small", "large"):
        parser.error(f"--data: {options.setting} needs an .npz file of features")
    if options.setting == "variants":
        todo, drawn = variants(options.data, options.rounds), DRAWN_VARIANTS
    else:
        todo, drawn = cells(options.setting, options.data, options.rounds), DRAWN
    if options.steps:
        todo = [Cell(cell.name, {**cell.config, "local-steps": options.steps}) for cell in todo]
    if options.only:
        todo = [cell for cell in todo if cell.name in options.only]
        drawn = tuple(cell.name for cell in todo)
    results = run_benchmark(options, todo, runner=runner)
    print(summary_table(results, COLUMNS).markdown(), end="\n\n")
    print(difference_table(results, COMPARED, "cosage").markdown(), end="\n\n")
    picture = options.out.with_suffix(".svg")
    print("curves:", plot_curves(results, "accuracy", picture, cells=drawn))
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
