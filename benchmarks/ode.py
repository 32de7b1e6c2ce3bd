"""ODE against the other rules for a stream, and against parts of itself.

``python -m forager.benchmarks.ode synthetic`` runs the paper's synthetic task (200 users),
``fashion`` its image task (50 clients), ``har --data users.npz`` activity recognition by user,
``traffic --data traffic.npz`` traffic classification (30 clients), ``few`` a federation of 8
clients with 2 labels each, where a plan can leave a label out. ``--what`` says what is compared:
the ``methods`` of the paper's table 2, ODE's ``parts``, or how ODE and the reservoir bear other
``settings``.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.config import Scalar
from ..tools.experiments.records import Cell
from ..tools.experiments.results import Results
from ..tools.experiments.tables import Table
from .stream_runs import RUNNER
from .sweeps.command import benchmark_parser, run_benchmark
from .sweeps.measures import last_mean
from .sweeps.plots import plot_curves
from .sweeps.tables import Column, difference_table, summary_table

Settings = dict[str, Scalar]

BASELINE = "reservoir"
ODE: Settings = {"data-selector": "ode-balanced"}
# (9b) as a limit of 5 clients, the remainder to fast labels
PAPER_ODE: Settings = {"data-selector": "ode"}
METHODS: dict[str, Settings] = {
    BASELINE: {"data-selector": "reservoir"},
    "fifo": {"data-selector": "fifo"},
    "high-loss": {"data-selector": "high-loss"},
    "gradient-norm": {"data-selector": "gradient-norm"},
    "fedbalancer": {"data-selector": "fedbalancer"},
    "sld": {"data-selector": "sld"},
    "ode-balanced": ODE,
    "ode-balanced, by lot": {**ODE, "ode.estimator": "none"},
    "ode-balanced, exact gradient": {**ODE, "ode.estimator": "exact"},
    "ode": PAPER_ODE,
    "ode, exact gradient": {**PAPER_ODE, "ode.estimator": "exact"},
    "unlimited": {"data-selector": "unlimited"},
    "all data": {"data-selector": "full"},
    "reservoir, equal weights": {"data-selector": "reservoir", "weighting": "uniform"},
}
COMPARED = ("ode-balanced", "ode")
PARTS: dict[str, Settings] = {
    "ode-balanced": {},
    "without valuation": {"ode.estimator": "none"},
    "without estimators": {"ode.estimator": "stored"},
    "exact gradient": {"ode.estimator": "exact"},
    "participants only": {"ode.estimator": "participants"},
}
# Table 1 and appendix C.2: 5 local epochs of full batches, each client's data in 500 rounds
PAPER: Settings = {
    "local-epochs": 5,
    "batch-size": 100_000,
    "stream.velocity": 0.002,
    "schedule.kind": "step",
    "schedule.every": 100,
    "schedule.factor": 0.95,
    "checkpoint.every": 0,
}
TASKS: dict[str, Settings] = {
    "synthetic": {
        "task": "synthetic",
        "partition": "natural",
        "model": "softmax",
        "num-clients": 200,
        "fraction-train": 0.05,
        "stream.capacity": 10,
    },
    "fashion": {
        "task": "fashion-mnist",
        "partition": "shards",
        "model": "lenet",
        "num-clients": 50,
        "fraction-train": 0.1,
        "stream.capacity": 5,
    },
    "har": {
        "task": "npz",
        "partition": "natural",
        "model": "dnn",
        "fraction-train": 0.1,
        "stream.capacity": 5,
    },
    "traffic": {
        "task": "npz",
        "partition": "dirichlet",
        "model": "dnn",
        "num-clients": 30,
        "fraction-train": 0.2,
        "stream.capacity": 10,
    },
    "few": {
        "task": "digits",
        "partition": "dirichlet",
        "model": "softmax",
        "num-clients": 8,
        "fraction-train": 0.25,
        "stream.capacity": 10,
    },
}
RATES = {"synthetic": 0.03, "fashion": 0.02, "har": 0.01, "traffic": 0.05, "few": 0.1}
ROBUSTNESS: dict[str, Settings] = {
    "2 epochs": {"local-epochs": 2},
    "10 epochs": {"local-epochs": 10},
    "5 % take part": {"fraction-train": 0.05},
    "50 % take part": {"fraction-train": 0.5},
    "5 stored": {"stream.capacity": 5},
    "20 stored": {"stream.capacity": 20},
    "20 % wrong labels": {"noise": "closed-set", "corruption.rate": 0.2},
    "40 % wrong labels": {"noise": "closed-set", "corruption.rate": 0.4},
}


COLUMNS = (
    Column("clients' accuracy", last_mean("clients-accuracy-mean"), ".1f", 100),
    Column("pooled accuracy", last_mean("accuracy"), ".1f", 100),
    Column("worst class", last_mean("worst-class"), ".1f", 100),
    Column("fewest holders", last_mean("fewest-holders"), ".1f"),
    Column("labels stored", last_mean("labels"), ".1f"),
    Column("labels a client", last_mean("labels-per-client"), ".1f"),
)


def speed_ups(results: Results, metric: str, baseline: str = BASELINE) -> Table:
    """Return how many times sooner each cell reaches the baseline's final accuracy.

    Both are read off the mean curve over seeds; the final accuracy is the mean of the last three
    evaluations.
    """
    target = results.estimate(baseline, last_mean(metric)).mean
    first = {cell: _reaches(results, cell, metric, target) for cell in results.cells}
    rows = [["cell", f"reaches {target:.1%} in round", "speed-up"]]
    for cell, reached in first.items():
        ratio = "never" if reached is None else f"{(first[baseline] or np.nan) / reached:.2f}"
        rows.append([cell, f"{reached or '-'}", ratio])
    return Table(rows)


def _reaches(results: Results, cell: str, metric: str, target: float) -> int | None:
    rounds, heights = results.curve(cell, metric)
    reached = rounds[np.array([height.mean for height in heights]) >= target]
    return int(reached[0]) if len(reached) else None


def under_settings(results: Results, column: Column) -> Table:
    """Return ODE's differences to the reservoir under each of the settings that were run."""
    rows = [["setting", BASELINE, *(f"{method} - {BASELINE}" for method in COMPARED)]]
    for setting in ROBUSTNESS:
        baseline = f"{BASELINE}, {setting}"
        names = [f"{method}, {setting}" for method in COMPARED]
        alone = summary_table(results, [column], cells=[baseline]).rows[1][-1]
        table = difference_table(results, [column], baseline, cells=names)
        rows.append([setting, alone, *(row[-1] for row in table.rows[1:])])
    return Table(rows)


def cells(options: Namespace) -> list[Cell]:
    """Return what an option of the command line asks to run."""
    common: Settings = {
        **PAPER,
        **TASKS[options.task],
        "learning-rate": options.rate or RATES[options.task],
        "num-server-rounds": options.rounds,
        "evaluate-every": options.every,
    }
    if options.data is not None:
        common["data.path"] = str(options.data.resolve())
        users = _users(options.data)
        common |= {"num-clients": users} if users else {}
    if common["partition"] == "natural":
        common["fraction-evaluate"] = 1.0
    if options.capacity:
        common["stream.capacity"] = options.capacity
    if options.what == "methods":
        chosen = {name: METHODS[name] for name in options.methods or METHODS}
        return [Cell(name, {**common, **own}) for name, own in chosen.items()]
    if options.what == "parts":
        baseline = Cell(BASELINE, {**common, **METHODS[BASELINE]})
        parts = {name: {**common, **ODE, **own} for name, own in PARTS.items()}
        return [baseline, *(Cell(name, config) for name, config in parts.items())]
    return [
        Cell(f"{method}, {name}", {**common, **METHODS[method], **own})
        for name, own in ROBUSTNESS.items()
        for method in (BASELINE, *COMPARED)
    ]


def _users(path: Path) -> int:
    """Return how many users a file has; 0 if its samples have no owner."""
    with np.load(path) as file:
        return len(np.unique(file["user_train"])) if "user_train" in file.files else 0


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Run the sweep, print its tables and draw its curves; 1 if a run failed."""
    parser = benchmark_parser("ode", __doc__, rounds=150, seeds=3)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--what", choices=("methods", "parts", "settings"), default="methods")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="only these")
    parser.add_argument("--data", type=Path, help="an .npz file, which har and traffic need")
    parser.add_argument("--capacity", type=int, help="samples a client stores; as in the paper")
    parser.add_argument("--rate", type=float, help="learning rate; the task's own")
    parser.add_argument("--every", type=int, default=5, help="rounds between evaluations")
    options = parser.parse_args(arguments)
    if options.data is None and options.task in ("har", "traffic"):
        parser.error(f"--data: {options.task} needs an .npz file")
    results = run_benchmark(options, cells(options), runner=runner)
    report(results, options.out)
    return 1 if results.failures else 0


def report(results: Results, out: Path) -> None:
    """Print the tables and draw the curves."""
    rows = [row for runs in results.runs.values() for run in runs.values() for row in run.rows]
    by_clients = any("clients-accuracy-mean" in row for row in rows)
    columns = COLUMNS if by_clients else COLUMNS[1:]
    metric = "clients-accuracy-mean" if by_clients else "accuracy"
    print(summary_table(results, columns).markdown(), end="\n\n")
    if BASELINE in results.cells:
        print(difference_table(results, columns[:-3], BASELINE).markdown(), end="\n\n")
        print(speed_ups(results, metric).markdown(), end="\n\n")
    else:
        print(under_settings(results, columns[0]).markdown(), end="\n\n")
    print("curves:", plot_curves(results, metric, out.with_suffix(".svg")))


if __name__ == "__main__":
    sys.exit(main())
