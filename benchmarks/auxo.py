"""Auxo against one model for all and against other clustered learning.

``python -m forager.benchmarks.auxo permuted`` plants four groups of clients whose labels mean
different things, ``rotated`` four whose images are turned, ``classes`` five with classes of their
own, ``none`` plants nothing (cohorts should not split), each on Fashion-MNIST or ``--data``.
``users --data femnist.npz`` takes the users of a data set as clients. On the ``permuted`` groups,
``sensitivity`` varies when clusters are looked for and split and into how many, ``lost`` lets
clients lose their records, ``corrupted`` gives some random labels, and ``privacy`` adds noise to
updates; there, every reply is waited for, so that nothing else keeps clients from their cohort.
``--samples 12000`` takes only the first training samples of Fashion-MNIST: clients with little
data, and a fifth of the work. ``planted`` are small runs on digits, with two and four groups of
turned images and of permuted labels.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.config import Scalar
from ..core.storage.files import replacing
from ..core.tasks import TaskSpec
from ..core.tasks.datasets import load_raw, rows
from ..strategies.federation.accountant import gaussian_multiplier
from ..tools.experiments.records import Cell
from ..tools.experiments.results import Results
from ..tools.experiments.tables import Table
from .cohort_runs import RUNNER
from .planted_groups import CLIENTS, ROUNDS, planted_cells, planted_table
from .sweeps.command import benchmark_parser, run_benchmark
from .sweeps.measures import at_round, final, seconds_to, total_bytes
from .sweeps.plots import plot_curves
from .sweeps.tables import Column, difference_table, summary_table

Changes = dict[str, Scalar]

COMMON: Changes = {
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
    "checkpoint.every": 0,
}
# The paper's defaults are for hundreds of participants and of rounds.
PAPER: Changes = {
    "cohorts": "auxo",
    "auxo.first-clustering": 5,
    "auxo.first-split": 10,
    "auxo.min-participants": 5,
}
PLANTED: dict[str, Changes] = {
    "permuted": {"groups.kind": "label-permutation", "groups.count": 4, "cohort.number": 4},
    "rotated": {"groups.kind": "rotation", "groups.count": 4, "cohort.number": 4},
    "classes": {"partition": "class-groups", "groups.count": 5, "cohort.number": 5},
    "none": {"partition": "dirichlet", "split.alpha": 1.0},
}
AGGREGATION: dict[str, Changes] = {
    "fedavg": {},
    "fedyogi": {"aggregator": "fedyogi", "aggregation.learning-rate": 0.01},
    "fedprox": {"objective": "prox", "prox.mu": 0.1},
    "qfedavg": {"aggregator": "qfedavg"},
}
AUXO: Changes = {"cohorts": "split-test"}
METHODS: dict[str, Changes] = {
    **AGGREGATION,
    **{f"split-test ({name})": AUXO | changes for name, changes in AGGREGATION.items()},
    **{f"auxo ({name})": PAPER | changes for name, changes in AGGREGATION.items()},
    "split-test, indices only": {**AUXO, "similarity": "centred-overlap", "ios.samples": 64},
    "ifca": {"cohorts": "ifca"},
    "cfl": {"cohorts": "cfl"},
    "flexcfl": {"cohorts": "flexcfl"},
    "fl+hc": {"cohorts": "fl-hc"},
}
BASELINE = {  # of each method with cohorts, the same without
    f"{auxo} ({name})": name for auxo in ("split-test", "auxo") for name in AGGREGATION
} | dict.fromkeys(["split-test, indices only", "ifca", "cfl", "flexcfl", "fl+hc"], "fedavg")
SENSITIVITY: dict[str, Changes] = {
    "no cohorts": {"cohorts": "none"},
    "auxo": {},
    "clusters from round 0": {"auxo.first-clustering": 0},
    "clusters from round 15": {"auxo.first-clustering": 15, "auxo.first-split": 20},
    "split from round 5": {"auxo.first-split": 5},
    "split from round 20": {"auxo.first-split": 20},
    "split from round 30": {"auxo.first-split": 30},
    "at most 2 parts": {"auxo.parts": 2},
    "at most 3 parts": {"auxo.parts": 3},
    "at most 8 parts": {"auxo.parts": 8},
}
DELTA = 1e-5  # the default of dp.delta


def _with_and_without(name: str, changes: Changes) -> dict[str, Changes]:
    return {f"fedavg, {name}": {"cohorts": "none", **changes}, f"split-test, {name}": changes}


def privacy(rounds: int) -> dict[str, Changes]:
    """Return little noise, and as much as a promise to everybody takes over that many rounds."""
    cells = _with_and_without("no noise", {})
    levels = {f"noise {noise}": noise for noise in (0.003, 0.01, 0.03)}
    # Any two updates of a client are at most two clips apart.
    levels |= {
        f"epsilon {epsilon}": 2 * gaussian_multiplier(epsilon, DELTA, rounds)
        for epsilon in (8, 4, 2)
    }
    for name, noise in levels.items():
        private: Changes = {"privacy": "local-dp", "dp.clip": 1.0, "dp.noise-multiplier": noise}
        if noise > 1:  # or such updates would be set aside as absurd
            private |= {"quarantine.norm-factor": 1e6}
        cells |= _with_and_without(name, {**private, "dp.delta": DELTA})
    return cells


def varied(setting: str, rounds: int) -> dict[str, Changes]:
    """Return what the settings on top of the permuted groups change."""
    if setting == "sensitivity":
        return SENSITIVITY
    if setting == "privacy":
        return privacy(rounds)
    if setting == "lost":
        lost: dict[str, Changes] = {
            f"auxo, {share:.0%} lost": {"records-lost": share} for share in (0.0, 0.05, 0.1, 0.2)
        }
        return {"no cohorts": {"cohorts": "none"}, **lost}
    shares = (0.0, 0.05, 0.1, 0.15)
    cells = [_with_and_without(f"{share:.0%} corrupted", {"corrupted": share}) for share in shares]
    return {name: changes for pair in cells for name, changes in pair.items()}


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
CURVE = (10, 12, 14, 16, 20, 25, 30, 40)  # rounds; cohorts may be split from the first of them
EPSILON = Column("epsilon", final("epsilon"), ".1f")


def columns_of(setting: str) -> list[Column]:
    """Return the columns of a setting: without truth no ARI, without noise no epsilon."""
    truth = setting not in ("none", "users")
    columns = [column for column in COLUMNS if truth or column.title != "ARI"]
    return [*columns, EPSILON] if setting == "privacy" else columns


def cells(
    setting: str, rounds: int, data: Path | None = None, clients: int = 0, model: str = "softmax"
) -> list[Cell]:
    """Return the runs of a setting."""
    if setting == "planted":
        return planted_cells(clients or CLIENTS, rounds, model)
    common = {**COMMON, "task": "fashion-mnist", "num-server-rounds": rounds, "model": model}
    if data is not None:
        common |= {"task": "npz", "data.path": str(data.resolve())}
    if clients:
        common |= {"num-clients": clients, "clients-per-round": max(2, clients // 2)}
    if setting == "users":
        common |= {"partition": "natural"}
    elif setting in PLANTED:
        common |= PLANTED[setting]
    else:
        method = PAPER if setting in ("sensitivity", "lost") else AUXO
        common |= {**PLANTED["permuted"], **method, "round.over-commit": 0.0}
        return [Cell(name, common | changes) for name, changes in varied(setting, rounds).items()]
    return [Cell(name, common | changes) for name, changes in METHODS.items()]


def first_samples(count: int, folder: Path) -> Path:
    """Write the first training samples of Fashion-MNIST to a file, if they are not there yet."""
    target = folder / f"fashion-mnist-{count}.npz"
    if not target.exists():
        raw = load_raw(TaskSpec(task="fashion-mnist"))
        parts = {"train": (raw.x_train, raw.y_train), "test": (raw.x_test, raw.y_test)}
        first = {name: np.arange(min(count, len(y))) for name, (_, y) in parts.items()}
        arrays = {f"x_{name}": rows(x, first[name]) for name, (x, _) in parts.items()}
        arrays |= {f"y_{name}": y[first[name]] for name, (_, y) in parts.items()}
        with replacing(target) as file:
            np.savez(file, allow_pickle=False, **arrays)
    return target


def gains_table(results: Results) -> Table:
    """Return what each method with cohorts gains over the same without, seed by seed.

    How much faster is the simulated time at which one model first has its final accuracy, over the
    time at which cohorts have as much.
    """
    accuracy, variance = final("clients-accuracy-mean"), final("clients-accuracy-variance")
    rows = [["cell", "over", "points", "variance", "times as fast"]]
    for cell, one in BASELINE.items():
        if not (results.runs.get(cell) and results.runs.get(one)):
            continue
        gained = results.difference(cell, one, accuracy)
        spread, spread_of_one = results.values(cell, variance), results.values(one, variance)
        less = [100 * (spread[seed] / spread_of_one[seed] - 1) for seed in spread]
        faster = [
            _seconds(results, one, seed, target) / _seconds(results, cell, seed, target)
            for seed, target in results.values(one, accuracy).items()
        ]
        reached = np.array(faster)[np.isfinite(faster)]
        points = f"{100 * gained.mean:+.1f}"
        if gained.count > 1:
            points += f" [{100 * gained.low:+.1f}, {100 * gained.high:+.1f}]"
        speed = f"{reached.mean():.1f} ({reached.size} of {len(faster)})" if reached.size else "-"
        rows.append([cell, one, points, f"{np.mean(less):+.0f} %", speed])
    return Table(rows)


def _seconds(results: Results, cell: str, seed: int, target: float) -> float:
    """Return when a run reached an accuracy, not a number if it never did."""
    run = results.runs[cell].get(seed)
    found = seconds_to("clients-accuracy-mean", target).of(run.rows) if run else None
    return float("nan") if found is None else found


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Run the sweep, print its tables and draw its curves; 1 if a run failed."""
    parser = benchmark_parser("auxo", __doc__, rounds=40, seeds=3)
    settings = [*PLANTED, "users", "sensitivity", "lost", "corrupted", "privacy", "planted"]
    parser.set_defaults(rounds=None)
    parser.add_argument("setting", choices=settings)
    parser.add_argument("--first-seed", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--data", type=Path, help="an .npz file")
    parser.add_argument("--samples", type=int, help="of Fashion-MNIST, instead of all")
    parser.add_argument("--clients", type=int, default=0, help="instead of 60, or 20 if planted")
    parser.add_argument("--model", default="softmax")
    parser.add_argument("--only", nargs="*", help="these cells only")
    options = parser.parse_args(arguments)
    if options.data is None and options.setting == "users":
        parser.error("--data: users needs an .npz file with user_train")
    if options.setting == "planted" and (options.data or options.samples):
        parser.error("--data, --samples: planted runs on digits")
    if options.rounds is None:
        options.rounds = ROUNDS if options.setting == "planted" else 40
    if options.data is None and options.samples:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.data = first_samples(options.samples, options.out.parent)
    todo = cells(options.setting, options.rounds, options.data, options.clients, options.model)
    unknown = set(options.only or ()) - {cell.name for cell in todo}
    if unknown:
        parser.error(f"--only: {sorted(unknown)}; there are {[cell.name for cell in todo]}")
    todo = [cell for cell in todo if not options.only or cell.name in options.only]
    results = run_benchmark(options, todo, runner=runner, first_seed=options.first_seed)
    if options.setting == "planted":
        print(planted_table(results).markdown())
        return 1 if results.failures else 0
    print(summary_table(results, columns_of(options.setting)).markdown(), end="\n\n")
    if options.setting in PLANTED and options.setting != "none":
        clustered = [cell for cell in results.cells if results.values(cell, final("ari"))]
        over_rounds = [Column(f"ARI, round {n}", at_round("ari", n), ".2f") for n in CURVE]
        print(summary_table(results, over_rounds, cells=clustered).markdown(), end="\n\n")
    if any(cell in BASELINE for cell in results.cells):
        print(gains_table(results).markdown(), end="\n\n")
    print(difference_table(results, COLUMNS[:2], todo[0].name).markdown(), end="\n\n")
    picture = options.out.with_suffix(".svg")
    drawn = [cell.name for cell in todo][:6]
    print("curves:", plot_curves(results, "clients-accuracy-mean", picture, cells=drawn))
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
