"""Index-Overlap Similarity against cosine, Euclidean and the truth.

``python -m benchmarks.ios align`` lets clients of Fashion-MNIST (or ``--data``) train together for
some rounds and compares the similarity matrices: do the nearest neighbours of a client have labels
like its own (recall against the oracle, Kendall's tau), how far are their mixtures (Jensen-Shannon
divergence), how clear are the clusters. ``cohorts`` and ``neighbours`` train personalised models by
each similarity and report the accuracy on the clients' own data.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau
from sklearn.metrics import silhouette_score
from torch.nn import functional

from benchmarks.cohort_runs import RUNNER
from benchmarks.command import benchmark_parser, run_benchmark
from benchmarks.measures import final, total_bytes
from benchmarks.records import Cell
from benchmarks.tables import Column, difference_table, summary_table
from client_app.batches import batch_seed
from client_app.fisher import fisher_diagonal
from client_app.job import Job
from client_app.objectives.plain import Plain
from client_app.settings import train_settings
from client_app.trainer import Trainer, load_arrays, read_arrays
from cohorts.similarity_clusters import similarity_clusters
from server_app.config import RunConfig, Scalar, read_config
from similarities.cosine import cosine_matrix
from similarities.euclidean import euclidean_matrix
from similarities.histograms import histogram_similarity, mixture_divergence
from similarities.importance_average import ImportanceAverage
from similarities.index_overlap import overlap_matrix, top_k_support
from tasks import load_task
from wire.arrays import flat_floats
from wire.supports import encode_support

Matrix = NDArray[np.float64]

SPLITS: dict[str, dict[str, Scalar]] = {
    "Dir(0.1)": {"partition": "dirichlet", "split.alpha": 0.1},
    "Dir(0.3)": {"partition": "dirichlet", "split.alpha": 0.3},
    "Patho(20 %)": {"partition": "pathological", "split.classes-per-client": 2},
    "Patho(30 %)": {"partition": "pathological", "split.classes-per-client": 3},
}
SHARES = {"IOS 10 %": 0.1, "IOS 15 %": 0.15, "IOS 25 %": 0.25}
SIMILARITIES = ("index-overlap", "cosine", "euclidean", "oracle")
COMMON: dict[str, Scalar] = {
    "task": "fashion-mnist",
    "model": "lenet",
    "num-clients": 200,  # of which the first are taken: 300 samples each
    "local-epochs": 2,
    "batch-size": 32,
    "learning-rate": 0.02,
    "momentum": 0.9,
    "weight-decay": 0.0005,
}
COLUMNS = (
    Column("accuracy", final("clients-accuracy-mean")),
    Column("worst 10 %", final("clients-accuracy-worst-10")),
    Column("cohorts", final("cohorts"), ".1f"),
    Column("MB", total_bytes(), ".0f", scale=1e-6),
)


@dataclass(frozen=True)
class Collected:
    """What clients would have sent: importance, last update, and the truth about their labels."""

    importance: list[NDArray[np.float32]]
    updates: list[NDArray[np.float32]]
    histograms: NDArray[np.int64]


def collect(config: RunConfig, clients: int, rounds: int) -> Collected:
    """Train the first clients together by FedAvg, and watch what matters to each."""
    task = load_task(config.task_spec())
    data = [task.client_data(i, config.num_clients) for i in range(clients)]
    model = task.build_model()
    trainer, arrays = Trainer(model), read_arrays(model)
    averages = [ImportanceAverage(config.ios.ema) for _ in data]
    for number in range(1, rounds + 1):
        jobs = [
            Job(arrays, held.train, batch_seed(config.seed, str(i), number))
            for i, held in enumerate(data)
        ]
        outcomes = trainer.train(jobs, train_settings(config, number), Plain(config))
        for average, held, outcome in zip(averages, data, outcomes, strict=True):
            load_arrays(model, outcome.arrays)
            model.eval()
            x, y = held.train.x, held.train.y
            average.update(fisher_diagonal(model, functional.cross_entropy, x, y))
        before, trained = arrays, [outcome.arrays for outcome in outcomes]
        means = {name: np.mean([t[name] for t in trained], axis=0) for name in arrays}
        arrays = {name: mean.astype(arrays[name].dtype) for name, mean in means.items()}
    start = flat_floats(before)
    labels = [held.train.y.numpy() for held in data]
    return Collected(
        [average.value for average in averages],
        [flat_floats(t) - start for t in trained],
        np.array([np.bincount(y, minlength=task.num_classes) for y in labels]),
    )


def matrices(found: Collected) -> dict[str, tuple[Matrix, int]]:
    """Return each similarity matrix, and the bytes that a client sends for it."""
    size = found.updates[0].size
    result: dict[str, tuple[Matrix, int]] = {}
    for name, share in SHARES.items():
        supports = [top_k_support(i, round(share * size)) for i in found.importance]
        result[name] = overlap_matrix(supports), len(encode_support(supports[0], size, 0))
    result["cosine"] = cosine_matrix(found.updates), 4 * size
    result["Euclidean"] = euclidean_matrix(found.updates), 4 * size
    return result


def agreement(matrix: Matrix, truth: Matrix, histograms: NDArray[Any]) -> dict[str, float]:
    """Return how well a similarity finds clients with the same labels."""
    pairs = np.triu_indices(len(truth), 1)
    scores = {f"R@{k}": _recall(matrix, truth, k) for k in (4, 8) if k < len(truth) - 1}
    scores["tau"] = float(kendalltau(matrix[pairs], truth[pairs]).statistic)
    near = min(8, len(truth) - 1)
    weights = np.clip(matrix, 0, None)
    scores["JS"] = float(mixture_divergence(weights, list(histograms), near).mean())
    labels = similarity_clusters(matrix).labels
    distances = 1 - truth
    np.fill_diagonal(distances, 0.0)
    several = 1 < len(set(labels.tolist())) < len(labels)
    scores["silhouette"] = (
        float(silhouette_score(np.clip(distances, 0, None), labels, metric="precomputed"))
        if several
        else 0.0
    )
    return scores


def _recall(matrix: Matrix, truth: Matrix, k: int) -> float:
    own = np.eye(len(truth), dtype=bool)
    others = [np.where(own, -np.inf, m) for m in (matrix, truth)]
    near = [np.argsort(-m, axis=1, kind="stable")[:, :k] for m in others]
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(*near, strict=True)]))


def align(options: Any) -> int:
    """Print one table for each way to spread the data: mean and spread over seeds."""
    for split, keys in SPLITS.items():
        rows: dict[str, list[dict[str, float]]] = {}
        for seed in range(options.seeds):
            config = read_config({**COMMON, **keys, **_data(options.data), "seed": seed})
            found = collect(config, options.clients, options.rounds)
            truth = histogram_similarity(list(found.histograms))
            for name, (matrix, sent) in matrices(found).items():
                scores = agreement(matrix, truth, found.histograms) | {"bytes": float(sent)}
                rows.setdefault(name, []).append(scores)
            best = agreement(truth, truth, found.histograms) | {"bytes": 0.0}
            rows.setdefault("oracle", []).append(best)
        _print(split, rows)
    return 0


def _print(split: str, rows: dict[str, list[dict[str, float]]]) -> None:
    names = list(next(iter(rows.values()))[0])
    print(f"| {split} | " + " | ".join(names) + " |")
    print("| --- |" + " --- |" * len(names))
    for method, scores in rows.items():
        columns = [np.array([score[name] for score in scores]) for name in names]
        cells = [
            f"{c.mean():,.0f}" if name == "bytes" else f"{c.mean():.3f} ± {_spread(c):.3f}"
            for name, c in zip(names, columns, strict=True)
        ]
        print(f"| {method} | " + " | ".join(cells) + " |", flush=True)
    print()


def _spread(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _data(path: Path | None) -> dict[str, Scalar]:
    return {} if path is None else {"task": "npz", "data.path": str(path.resolve())}


def cells(setting: str, data: Path | None, rounds: int, clients: int) -> list[Cell]:
    """Return personalised training by each similarity, for each way to spread the data."""
    common: dict[str, Scalar] = {
        **COMMON,
        "model": "mlp",
        "num-clients": clients,
        "client-selector": "all",
        "data.client-test-share": 0.2,
        "fraction-evaluate": 1.0,
        "evaluate-every": rounds,
        "num-server-rounds": rounds,
        "ios.samples": 128,
        "ios.neighbours": 4,
        "checkpoint.every": 0,
        **_data(data),
    }
    todo = []
    for split in ("Dir(0.1)", "Patho(20 %)"):
        keys = {**common, **SPLITS[split]}
        todo.append(Cell(f"{split}: one model", keys))
        todo += [
            Cell(f"{split}: {name}", {**keys, "cohorts": setting, "similarity": name})
            for name in SIMILARITIES
        ]
    return todo


def main(arguments: Sequence[str] | None = None, *, runner: str = RUNNER) -> int:
    """Run what was asked for; 1 if a run failed."""
    parser = benchmark_parser("ios", __doc__, rounds=5, seeds=3)
    parser.add_argument("setting", choices=["align", "cohorts", "neighbours"])
    parser.add_argument("--data", type=Path, help="an .npz file instead of Fashion-MNIST")
    parser.add_argument("--clients", type=int, default=20)
    options = parser.parse_args(arguments)
    if options.setting == "align":
        return align(options)
    setting = {"cohorts": "similarity", "neighbours": "neighbours"}[options.setting]
    todo = cells(setting, options.data, options.rounds, options.clients)
    results = run_benchmark(options, todo, runner=runner)
    print(summary_table(results, COLUMNS).markdown(), end="\n\n")
    print(difference_table(results, COLUMNS[:1], todo[0].name).markdown(), end="\n\n")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
