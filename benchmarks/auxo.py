"""Auxo against one model for all and against other clustered learning.

``python -m benchmarks.auxo permuted`` plants four groups of clients whose labels mean different
things, ``rotated`` four whose images are turned, ``classes`` five with classes of their own,
``none`` plants nothing (cohorts should not split), each on Fashion-MNIST or ``--data``. ``users
--data femnist.npz`` takes the users of a data set as clients. ``sensitivity`` varies when clusters
are looked for and split, ``privacy`` adds noise to updates.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cohort_runs import RUNNER
from benchmarks.command import benchmark_parser, run_benchmark
from benchmarks.measures import final, total_bytes
from benchmarks.plots import plot_curves
from benchmarks.records import Cell
from benchmarks.tables import Column, difference_table, summary_table
from server_app.config import Scalar

COMMON: dict[str, Scalar] = {
    "model": "softmax",
    "partition": "iid",
    "num-clients": 60,
    "clients-per-round": 30,
    "local-epochs": 2,
    "batch-size": 20,
    "learning-rate": 0.05,
    "data.client-test-share": 0.2,
    "fraction-evaluate": 1.0,
    "evaluate-every": 5,
    "devices.slow": True,
    "round.over-commit": 0.25,
    "cohort.first-clustering": 5,
    "cohort.first-split": 10,
    "cohort.min-participants": 5,
    "checkpoint.every": 0,
}
PLANTED: dict[str, dict[str, Scalar]] = {
    "permuted": {"groups.kind": "label-permutation", "groups.count": 4, "cohort.number": 4},
    "rotated": {"groups.kind": "rotation", "groups.count": 4, "cohort.number": 4},
    "classes": {"partition": "class-groups", "groups.count": 5, "cohort.number": 5},
    "none": {"partition": "dirichlet", "split.alpha": 1.0},
}
YOGI: dict[str, Scalar] = {"aggregator": "fedyogi", "aggregation.learning-rate": 0.01}
METHODS: dict[str, dict[str, Scalar]] = {
    "fedavg": {},
    "fedyogi": YOGI,
    "fedprox": {"objective": "prox", "prox.mu": 0.1},
    "qfedavg": {"aggregator": "qfedavg"},
    "auxo (fedavg)": {"cohorts": "auxo"},
    "auxo (fedyogi)": {"cohorts": "auxo", **YOGI},
    "auxo (fedprox)": {"cohorts": "auxo", "objective": "prox", "prox.mu": 0.1},
    "auxo (qfedavg)": {"cohorts": "auxo", "aggregator": "qfedavg"},
    "auxo, indices only": {"cohorts": "auxo", "similarity": "index-overlap", "ios.samples": 64},
    "ifca": {"cohorts": "ifca"},
    "cfl": {"cohorts": "cfl"},
    "flexcfl": {"cohorts": "flexcfl"},
    "fl+hc": {"cohorts": "fl-hc"},
}
SENSITIVITY: dict[str, dict[str, Scalar]] = {
    "auxo": {},
    "clusters from round 0": {"cohort.first-clustering": 0},
    "clusters from round 15": {"cohort.first-clustering": 15, "cohort.first-split": 20},
    "split from round 5": {"cohort.first-split": 5},
    "split from round 30": {"cohort.first-split": 30},
    "strict split": {"cohort.split-exponent": 1.0},
    "two parts": {"cohort.parts": 2},
    "no cohorts": {"cohorts": "none"},
}
PRIVACY: dict[str, dict[str, Scalar]] = {
    f"noise {noise}": {"privacy": "local-dp", "dp.clip": 1.0, "dp.noise-multiplier": noise}
    for noise in (0.001, 0.01, 0.05)
}
COLUMNS = (
    Column("accuracy", final("clients-accuracy-mean")),
    Column("worst 10 %", final("clients-accuracy-worst-10")),
    Column("best 10 %", final("clients-accuracy-best-10")),
    Column("variance", final("clients-accuracy-variance"), ".4f"),
    Column("cohorts", final("cohorts"), ".1f"),
    Column("ARI", final("ari"), ".2f"),
    Column("MB", total_bytes(), ".0f", scale=1e-6),
    Column("simulated s", final("simulated"), ".0f"),
)


def cells(setting: str, data: Path | None, rounds: int, clients: int) -> list[Cell]:
    """Return the runs of a setting."""
    common = {**COMMON, "task": "fashion-mnist", "num-server-rounds": rounds}
    if data is not None:
        common |= {"task": "npz", "data.path": str(data.resolve())}
    if clients:
        common |= {"num-clients": clients, "clients-per-round": max(2, clients // 2)}
    if setting == "users":
        common |= {"partition": "natural"}
        return [Cell(name, {**common, **changes}) for name, changes in METHODS.items()]
    if setting in PLANTED:
        common |= PLANTED[setting]
        return [Cell(name, {**common, **changes}) for name, changes in METHODS.items()]
    common |= {**PLANTED["permuted"], "cohorts": "auxo"}
    varied = SENSITIVITY if setting == "sensitivity" else {"auxo": {}, **PRIVACY}
    return [Cell(name, {**common, **changes}) for name, changes in varied.items()]


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Run the sweep, print its tables and draw its curves; 1 if a run failed."""
    parser = benchmark_parser("auxo", __doc__, rounds=50, seeds=3)
    parser.add_argument("setting", choices=[*PLANTED, "users", "sensitivity", "privacy"])
    parser.add_argument("--data", type=Path, help="an .npz file")
    parser.add_argument("--clients", type=int, default=0, help="instead of 60")
    parser.add_argument("--only", nargs="*", help="these methods only")
    options = parser.parse_args(arguments)
    if options.data is None and options.setting == "users":
        parser.error("--data: users needs an .npz file with user_train")
    todo = cells(options.setting, options.data, options.rounds, options.clients)
    todo = [cell for cell in todo if not options.only or cell.name in options.only]
    results = run_benchmark(options, todo, runner=runner)
    print(summary_table(results, COLUMNS).markdown(), end="\n\n")
    print(difference_table(results, COLUMNS[:2], todo[0].name).markdown(), end="\n\n")
    picture = options.out.with_suffix(".svg")
    drawn = [cell.name for cell in todo][:6]
    print("curves:", plot_curves(results, "clients-accuracy-mean", picture, cells=drawn))
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
