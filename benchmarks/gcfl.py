"""GCFL against the other ways to spend a budget of samples, and against training on all of them.

``python -m forager.benchmarks.gcfl motivating`` is the paper's experiment with blobs (section 2),
``cifar --data cifar10.npz`` its main one (10 clients, Dirichlet 0.4, a two-layer CNN, six kinds and
levels of noise), ``fashion`` the same on Fashion-MNIST with a smaller network, ``ablations`` how
GCFL depends on its settings at 40 % flipped labels, ``better`` what else can be done with the same
budget (both on Fashion-MNIST unless there is ``--data``). ``long`` and ``long-blobs`` train wide
networks until they know their wrong labels by heart. ``--noise`` and ``--methods`` run a part of
it, ``--samples`` all of it on a part of the training data.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ..core.config import Scalar
from ..tools.experiments.records import Cell
from ..tools.experiments.results import Results
from .coreset_runs import RUNNER
from .data_part import write_part
from .sweeps.command import benchmark_parser, run_benchmark
from .sweeps.measures import at_round, best, final, total
from .sweeps.plots import plot_curves
from .sweeps.tables import Column, difference_table, summary_table

Settings = dict[str, Scalar]

# Section 6.3: SGD with learning rate 0.01, momentum 0.9, weight decay 5e-4, cosine annealing,
# batches of 32; one local epoch. The plain mean of eq. 2, all clients in every round.
PAPER: Settings = {
    "num-clients": 10,
    "client-selector": "all",
    "weighting": "uniform",
    "split.alpha": 0.4,
    "learning-rate": 0.01,
    "momentum": 0.9,
    "weight-decay": 5e-4,
    "schedule.kind": "cosine",
    "batch-size": 32,
    "coreset.budget": 0.1,
    "coreset.every": 10,
    "checkpoint.every": 0,
    "report": False,
    "local.threads": 1,  # seconds of clients that train side by side would say little
}
METHODS: dict[str, Settings] = {
    "fedavg": {},
    "fedprox": {"objective": "prox"},
    "scaffold": {"objective": "scaffold"},
    "moon": {"objective": "moon"},
    "random": {"data-selector": "random"},
    "facility-location": {"data-selector": "facility-location"},
    "crust": {"data-selector": "crust"},
    "gradmatch": {"data-selector": "gradmatch"},
    "trusted": {"data-selector": "trusted"},
    "gcfl": {"data-selector": "gcfl"},
    "gcfl, total": {"data-selector": "gcfl", "coreset.residual": "total"},
    "gcfl, plain-mean": {"data-selector": "gcfl", "coreset.residual": "plain-mean"},
    "gcfl, printed": {"data-selector": "gcfl", "coreset.residual": "printed"},
    "trusted, all trusted": {"data-selector": "trusted", "coreset.budget": 1.0},
    "nearest": {"data-selector": "nearest"},
    "random, redrawn": {"data-selector": "random", "coreset.every": 1},
    "skyline": {"data-selector": "skyline"},
    "fedavg + fine-tuning": {"fine-tune.epochs": 1},
    "trusted + fine-tuning": {"data-selector": "trusted", "fine-tune.epochs": 1},
    "gcfl + fine-tuning": {"data-selector": "gcfl", "fine-tune.epochs": 1},
}
NOISES: dict[str, Settings] = {
    "clean": {"noise": "none"},
    "closed-20": {"noise": "closed-set", "corruption.rate": 0.2},
    "closed-40": {"noise": "closed-set", "corruption.rate": 0.4},
    "closed-60": {"noise": "closed-set", "corruption.rate": 0.6},
    "open-40": {"noise": "open-set", "corruption.rate": 0.4},
    "attribute-40": {"noise": "attribute", "corruption.rate": 0.4},
}
EXPERIMENTS: dict[str, Settings] = {
    "motivating": {"task": "blobs", "model": "softmax", "partition": "iid"},
    "cifar": {"task": "npz", "model": "cnn"},
    "fashion": {"task": "fashion-mnist", "model": "small-cnn"},
    "ablations": {"task": "fashion-mnist", "model": "mlp"},
    "better": {"task": "fashion-mnist", "model": "mlp"},
    "long": {
        **{"task": "digits", "model": "mlp", "net.hidden": 256, "weight-decay": 0.0},
        **{"batch-size": 16, "local-epochs": 2, "learning-rate": 0.05},
    },
    "long-blobs": {
        **{"task": "blobs", "model": "mlp", "net.hidden": 512, "partition": "iid"},
        **{"batch-size": 16, "local-epochs": 5, "weight-decay": 0.0},
        **{"learning-rate": 0.003, "schedule.kind": "constant"},
    },
}
# What one experiment leaves out by default: figure 2 has one level of noise and few methods.
DEFAULT_NOISES = {
    name: ["closed-40"] for name in ("motivating", "ablations", "better", "long", "long-blobs")
}
LONG = [
    *("fedavg", "random, redrawn", "gcfl", "gcfl, total", "gcfl, printed"),
    *("gcfl, plain-mean", "nearest", "trusted", "trusted, all trusted"),
    "skyline",
]
DEFAULT_METHODS = {
    "long": LONG,
    "long-blobs": LONG,
    "motivating": [
        "fedavg",
        "random",
        "random, redrawn",
        "gcfl",
        "nearest",
        "trusted",
        "skyline",
    ],
    "ablations": ["gcfl", "trusted"],
    "better": ["gcfl"],
}
# Steps a round of a client of average size (1000 samples, --samples 10000) at a budget of 10 %
STEPS = 4
ABLATIONS: dict[str, Settings] = {
    "as it is": {},
    # Shares of Fashion-MNIST's 10,000 test samples, and at --samples 10000 of the training data too
    **{f"server data {share:.0%}": {"data.validation-share": share} for share in (0.02, 0.05, 0.1)},
    **{
        f"budget {share:.0%}, same steps": {"coreset.budget": share, "local-steps": STEPS}
        for share in (0.05, 0.1, 0.2, 0.3)
    },
    **{f"alpha {alpha:g}": {"split.alpha": alpha} for alpha in (0.1, 1.0, 10.0)},
    **{
        f"participation {share:.0%}": {"client-selector": "random", "fraction-train": share}
        for share in (0.5, 0.75)
    },
    **{f"K = {every}": {"coreset.every": every} for every in (1, 5, 20)},
}
PROJECTION: Settings = {"data-selector": "gradmatch", "coreset.target": "server"}
BETTER: dict[str, Settings] = {
    "as it is": {},
    "first choice at once": {"coreset.first-round": 0},
    "first choice after 5": {"coreset.first-round": 5},
    "weights": {"coreset.use-weights": True},
    "projection": PROJECTION,
    "nearest": {"data-selector": "nearest"},
    "projection, K = 5": {**PROJECTION, "coreset.every": 5},
    "projection, weights": {**PROJECTION, "coreset.use-weights": True},
    "random, K = 1": {"data-selector": "random", "coreset.every": 1},
    "own target": {"coreset.target": "own"},
    "all classes at once": {"coreset.per-class": False},
    "small ridge": {"coreset.ridge": 1e-3},
    "trusted": {"data-selector": "trusted"},
    "trusted, first choice at once": {"data-selector": "trusted", "coreset.first-round": 0},
    "trusted, K = 5": {"data-selector": "trusted", "coreset.every": 5},
    "trusted, K = 20": {"data-selector": "trusted", "coreset.every": 20},
    "equal parts of the budget": {"coreset.class-budgets": "equal"},
    **{f"residual {name}": {"coreset.residual": name} for name in ("total", "plain-mean")},
    "residual printed": {"coreset.residual": "printed"},
    "noise on the target": {"coreset.noise-multiplier": 1.0},
}
CLEAN = Column("clean", final("clean-share"))
COLUMNS = (
    Column("final", final("accuracy")),
    Column("best", best("accuracy")),
    CLEAN,
    Column("choosing s", total("choose-seconds"), ".1f"),
    Column("training s", total("train-seconds"), ".1f"),
    Column("MB down", total("bytes-down"), ".1f", scale=1e-6),
    Column("MB guidance", total("bytes-guidance"), ".2f", scale=1e-6),
)
COMPARED = COLUMNS[:2]


def cells(options: Namespace) -> list[Cell]:
    """Return the runs of an experiment: noises times methods, times variants where it has any."""
    common = {**PAPER, **EXPERIMENTS[options.experiment], "num-server-rounds": options.rounds}
    common["evaluate-every"] = options.evaluate_every
    if options.data is not None:
        common |= {"task": "npz", "data.path": str(options.data.resolve())}
    if options.model:
        common["model"] = options.model
    if options.learning_rate:
        common["learning-rate"] = options.learning_rate
    if options.batch_size:
        common["batch-size"] = options.batch_size
    variants = {"ablations": ABLATIONS, "better": BETTER}.get(options.experiment, {"": {}})
    return [
        Cell(_name(noise, method, variant), {**common, **NOISES[noise], **METHODS[method], **more})
        for noise in options.noise or DEFAULT_NOISES.get(options.experiment, list(NOISES))
        for method in options.methods or DEFAULT_METHODS.get(options.experiment, list(METHODS))
        for variant, more in variants.items()
    ]


def _name(noise: str, method: str, variant: str) -> str:
    return ", ".join(filter(None, (noise, method, variant)))


def show(results: Results, cells: Sequence[Cell], curves: Path) -> None:
    """Print tables for each kind of noise, with the differences to its GCFL, and draw curves."""
    rounds = int(cells[0].config["num-server-rounds"])
    moments = sorted({1, 2, *(max(1, rounds * quarter // 4) for quarter in range(1, 5))})
    clean = [Column(f"clean, round {n}", at_round("clean-share", n)) for n in moments]
    groups: dict[str, list[str]] = {}
    for cell in cells:
        groups.setdefault(cell.name.partition(", ")[0], []).append(cell.name)
    known = [c for c in COLUMNS if _measured(results, c)]
    for noise, names in groups.items():
        print(f"### {noise}\n")
        print(summary_table(results, known, cells=names).markdown(), end="\n\n")
        chosen = [n for n in names if CLEAN in known and results.values(n, CLEAN.measure)]
        if chosen:
            print(summary_table(results, clean, cells=chosen).markdown(), end="\n\n")
        baseline = next((name for name in names if name.startswith(f"{noise}, gcfl")), None)
        if baseline and len(names) > 1:
            table = difference_table(results, COMPARED, baseline, cells=names)
            print(table.markdown(), end="\n\n")
        path = curves.with_name(f"{curves.stem}-{noise}.svg")
        print("curves:", plot_curves(results, "accuracy", path, cells=names), end="\n\n")


def _measured(results: Results, column: Column) -> bool:
    rows = [row for runs in results.runs.values() for run in runs.values() for row in run.rows]
    return all(any(metric in row for row in rows) for metric in column.measure.metrics)


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Run the sweep, print its tables and draw its curves; 1 if a run failed."""
    parser = benchmark_parser("gcfl", __doc__, rounds=100, seeds=3)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--data", type=Path, help="an .npz file of images")
    parser.add_argument("--samples", type=int, help="number of training samples; all by default")
    parser.add_argument("--learning-rate", type=float, help="another than the paper's")
    parser.add_argument("--batch-size", type=int, help="another than the paper's")
    parser.add_argument("--noise", nargs="*", choices=NOISES, help="these only")
    parser.add_argument("--methods", nargs="*", choices=METHODS, help="these only")
    parser.add_argument("--model", default="", help="another model than the experiment's")
    parser.add_argument("--evaluate-every", type=int, default=5, help="rounds")
    options = parser.parse_args(arguments)
    if options.samples is not None and options.samples < 1:
        parser.error(f"--samples: expected 1 or more, got {options.samples}")
    if options.data is None and EXPERIMENTS[options.experiment]["task"] == "npz":
        parser.error(f"--data: {options.experiment} needs an .npz file of images")
    if options.samples is not None:
        task = "npz" if options.data else str(EXPERIMENTS[options.experiment]["task"])
        data = str(options.data.resolve()) if options.data else ""
        options.data = write_part(task, data, options.samples, options.out.parent)
    todo = cells(options)
    results = run_benchmark(options, todo, runner=runner)
    show(results, todo, options.out)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
