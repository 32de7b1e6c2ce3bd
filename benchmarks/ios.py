"""Index-Overlap Similarity against cosine, Euclidean and the truth.

``python -m forager.benchmarks.ios align`` lets clients train together for some rounds and compares
the similarity matrices: do the nearest of a client have labels like its own (recall and Kendall's
tau against the oracle and against KNN-Shapley), how far are their mixtures (Jensen-Shannon
divergence), how clear are the clusters. ``cohorts`` and ``neighbours`` train personalised models by
each similarity and report the accuracy on the clients' own data. ``selection`` trains one model
with few clients a round, chosen by the diversity of their supports and otherwise.
``forager donors RUN`` does what ``align`` does with the similarities that a run has found.

``--task`` is scikit-learn's digits, Fashion-MNIST, CIFAR-10 (an ``.npz`` file, ``--data``) or 20
Newsgroups (``--data`` or scikit-learn's copy); the nets are an MLP, LeNet, LeNet and an MLP on
TF-IDF.
"""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.config import Scalar, read_config
from ..core.methods.ios import Ios
from ..core.storage.files import replacing
from ..core.tasks import TaskSpec
from ..core.tasks.datasets import load_raw
from ..tools.donor_ranking import shapley_matrix
from ..tools.experiments.records import Cell
from ..tools.experiments.tables import Table
from .cohort_runs import RUNNER
from .ios_alignment import (
    Scores,
    alignment,
    collect,
    donor_agreement,
    matrices,
)
from .sweeps.command import benchmark_parser, run_benchmark
from .sweeps.measures import area, final, jitter, total_bytes
from .sweeps.tables import Column, difference_table, summary_table

Settings = dict[str, Scalar]

SETTINGS = ["align", "cohorts", "neighbours", "selection"]
TASKS: dict[str, Settings] = {
    "digits": {"model": "mlp", "learning-rate": 0.05},
    "fashion-mnist": {"model": "lenet", "learning-rate": 0.02},
    "cifar10": {"model": "lenet", "learning-rate": 0.01},
    "20news": {"task": "20news", "model": "mlp", "learning-rate": 0.5},
}
CLASSES = {"digits": 10, "fashion-mnist": 10, "cifar10": 10, "20news": 20}
SPLITS: dict[str, Settings] = {
    "Dir(0.1)": {"partition": "dirichlet", "split.alpha": 0.1},
    "Dir(0.3)": {"partition": "dirichlet", "split.alpha": 0.3},
    "Patho(20 %)": {"partition": "pathological"},
    "Patho(30 %)": {"partition": "pathological"},
}
SELECTORS = ("random", "aoi", "round-robin", "support-diversity", "signed-diversity")
SIMILARITIES = (
    *("centred-overlap", "index-overlap", "signed-overlap"),
    *("cosine", "euclidean", "oracle"),
)
COMMON: Settings = {
    "batch-size": 32,
    "momentum": 0.9,
    "weight-decay": 0.0005,
    "ios.most": 0.2,  # K_max of the paper
    "local.threads": 1,
}
_MEGABYTES = Column("MB", total_bytes(), ".1f", scale=1e-6)
_OWN = (
    Column("accuracy", final("clients-accuracy-mean")),
    Column("worst 10 %", final("clients-accuracy-worst-10")),
)
COLUMNS = {
    "cohorts": (*_OWN, Column("cohorts", final("cohorts"), ".1f"), _MEGABYTES),
    "neighbours": (*_OWN, _MEGABYTES),
    "selection": (
        Column("accuracy", final("accuracy")),
        Column("area", area("accuracy"), ".2f"),
        Column("jitter", jitter("accuracy")),
        _MEGABYTES,
    ),
}
FEW = 20  # clients of tables 2, 4 and 5; recall (table 3) is that of all
TABLES = {
    "recall of the {all} clients' 4 / 8 / 16 nearest": ("R@4", "R@8", "R@16"),
    "{few} clients, silhouette / Davies-Bouldin / Calinski-Harabasz": (
        "silhouette, {few}",
        "Davies-Bouldin, {few}",
        "Calinski-Harabasz, {few}",
    ),
    "{few} clients, tau / R@5 to the oracle's order of donors": ("tau, {few}", "R@5, {few}"),
    "{few} clients, tau / R@5 to KNN-Shapley": ("Shapley tau", "Shapley R@5"),
    "{few} clients, divergence of the mixture of 8 neighbours": ("JS, {few}",),
    "share of the parameters / bytes that a client sends": ("share", "bytes"),
}


def settings(options: Namespace, split: str) -> Settings:
    """Return the run config of a task and a way to spread its data."""
    keys: Settings = {**COMMON, **TASKS[options.task], **SPLITS[split]}
    if "Patho" in split:
        share = int(split[6:8]) / 100
        keys["split.classes-per-client"] = round(share * CLASSES[options.task])
    if options.task == "20news":
        keys |= {"data.path": str(options.data.resolve())} if options.data else {}
    else:
        keys |= {"task": "npz", "data.path": str(_subset(options))}
    keys |= {"num-clients": options.clients, "local-epochs": options.epochs}
    return keys | ({"model": options.model} if options.model else {})


def _subset(options: Namespace) -> Path:
    """Return a file with as many images as the clients are to have, made if it is not there."""
    count = options.clients * options.samples
    target = Path(options.out).parent.resolve() / f"{options.task}-{count}.npz"
    if not target.exists():
        path = str(options.data.resolve()) if options.data else ""
        raw = load_raw(TaskSpec(task="npz" if path else options.task, path=path))
        if len(raw.y_train) < count:
            raise SystemExit(f"--samples: {len(raw.y_train)} images are fewer than {count}")
        parts: dict[str, Any] = {"x_train": raw.x_train[:count], "y_train": raw.y_train[:count]}
        parts |= {"x_test": raw.x_test[:2000], "y_test": raw.y_test[:2000]}
        with replacing(target) as file:
            np.savez(file, allow_pickle=False, **parts)
    return target


def align(options: Namespace) -> int:
    """Print the paper's tables 2 to 5, mean and spread over seeds.

    Each seed's scores are a line of the output file; those that are there are not made again.
    """
    known = _lines(options.out)
    found: dict[str, list[dict[str, Scores]]] = {split: [] for split in options.splits}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for split in options.splits:
            setting = [options.task, split, options.clients, options.rounds, options.epochs, seed]
            if json.dumps(setting) not in known:
                rows = _scores(options, split, seed)
                with options.out.open("a") as file:
                    file.write(json.dumps({"setting": setting, "rows": rows}) + "\n")
                known[json.dumps(setting)] = rows
            found[split].append(known[json.dumps(setting)])
    few = min(FEW, options.clients)
    for title, measures in TABLES.items():
        names = [measure.format(few=few) for measure in measures]
        heading = f"{options.task}, {title.format(few=few, all=options.clients)}"
        print(_table(heading, found, names).markdown(), end="\n\n", flush=True)
    return 0


def _lines(path: Path) -> dict[str, dict[str, Scores]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {json.dumps(line["setting"]): line["rows"] for line in lines}


def _scores(options: Namespace, split: str, seed: int) -> dict[str, Scores]:
    config = read_config({**settings(options, split), "seed": seed})
    everyone = collect(config, options.clients, options.rounds)
    few = everyone.first(FEW)
    worth = shapley_matrix(few.data)
    coverage, most = config[Ios].coverage, config[Ios].most
    rows = {}
    for name, (matrix, sent) in matrices(everyone, coverage, most).items():
        recalls = alignment(matrix, everyone.histograms)
        near = matrix[:FEW, :FEW]
        rows[name] = {
            **{measure: recalls[measure] for measure in recalls if measure.startswith("R@")},
            **{
                f"{measure}, {len(few.data)}": value
                for measure, value in alignment(near, few.histograms).items()
            },
            **donor_agreement(near, worth),
            **sent,
        }
    return rows


def _table(title: str, found: dict[str, list[dict[str, Scores]]], measures: Sequence[str]) -> Table:
    """Return mean and standard deviation over seeds: a row a similarity, a column a split."""
    lines = [[title, *found]]
    for name in next(iter(found.values()))[0]:
        entries = []
        for rows in found.values():
            values = [
                [scores[name].get(measure, np.nan) for scores in rows] for measure in measures
            ]
            entries.append(" / ".join(_entry(np.array(value)) for value in values))
        lines.append([name, *entries])
    return Table(lines)


def _entry(values: NDArray[np.float64]) -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return "-"
    if known.max() >= 100:
        return f"{known.mean():,.0f}"
    spread = f" ± {known.std(ddof=1):.2f}" if known.size > 1 else ""
    return f"{known.mean():.2f}{spread}"


def selection_cells(options: Namespace) -> list[Cell]:
    """Return training of one model with a tenth of the clients, chosen in several ways."""
    common: Settings = {
        "model": "mlp",
        "clients-per-round": max(2, options.clients // 10),
        "num-server-rounds": options.rounds,
        "evaluate-every": 2,
        "checkpoint.every": 0,
    }
    return [
        Cell(f"{split}: {name}", {**settings(options, split), **common, "client-selector": name})
        for split in options.splits
        for name in SELECTORS
    ]


def cells(options: Namespace) -> list[Cell]:
    """Return personalised training by each similarity, for each way to spread the data."""
    common: Settings = {
        "client-selector": "all",
        "data.client-test-share": 0.2,
        "fraction-evaluate": 1.0,
        "evaluate-every": options.rounds,
        "num-server-rounds": options.rounds,
        "ios.samples": 128,
        "ios.neighbours": 4,
        "checkpoint.every": 0,
    }
    cohorts = {"cohorts": "similarity", "neighbours": "neighbours"}[options.setting]
    todo = []
    for split in options.splits:
        keys = {**settings(options, split), **common}
        todo.append(Cell(f"{split}: one model", keys))
        todo += [
            Cell(f"{split}: {name}", {**keys, "cohorts": cohorts, "similarity": name})
            for name in SIMILARITIES
        ]
    return todo


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Run what was asked for; 1 if a run failed."""
    parser = benchmark_parser("ios", __doc__, rounds=5, seeds=3)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--task", choices=list(TASKS), default="fashion-mnist")
    parser.add_argument("--data", type=Path, help="the file of CIFAR-10 or of 20 Newsgroups")
    parser.add_argument("--splits", nargs="*", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--model", default="", help="instead of the task's own")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--samples", type=int, default=300, help="images of each client")
    parser.add_argument("--first-seed", type=int, default=0, help="of those that align looks at")
    parser.add_argument("--epochs", type=int, default=2, help="of local training")
    options = parser.parse_args(arguments)
    if options.setting == "align":
        return align(options)
    todo = selection_cells(options) if options.setting == "selection" else cells(options)
    columns = COLUMNS[options.setting]
    results = run_benchmark(options, todo, runner=runner)
    print(summary_table(results, columns).markdown(), end="\n\n")
    for split in options.splits:
        own = [cell.name for cell in todo if cell.name.startswith(f"{split}:")]
        table = difference_table(results, columns[:1], own[0], cells=own[1:])
        print(table.markdown(), end="\n\n")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
