"""Similarity matrices of clients that train together, and how well each tells who is like whom.

The truth is the similarity of label histograms, which only an evaluation may look at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score, silhouette_score
from torch.nn import functional

from ..core.config import RunConfig
from ..core.learning.fisher import fisher_diagonals
from ..core.learning.job import Job, batch_seed
from ..core.learning.model_arrays import read_arrays
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import train_settings
from ..core.learning.trainer import Trainer
from ..core.methods.ios import PAST
from ..core.tasks import Samples, load_task
from ..core.wire.arrays import flat_floats
from ..core.wire.supports import encode_signed_support, encode_support
from ..selectors.cohorts.similarity_clusters import similarity_clusters
from ..selectors.similarities.gram import (
    centred_cosines,
    cosine_matrix,
    euclidean_matrix,
    gram_matrix,
)
from ..selectors.similarities.histograms import histogram_similarity, mixture_divergence
from ..selectors.similarities.importance_average import averaged
from ..selectors.similarities.index_overlap import (
    centred_overlap_matrix,
    choose_k,
    overlap_matrix,
    top_k_support,
)
from ..selectors.similarities.signed_overlap import (
    signed_overlap_matrix,
    split_codes,
    top_k_changes,
)
from ..selectors.similarities.valuation import kendall_agreement, recall_at
from ..tools.donor_ranking import NEIGHBOURS

Matrix = NDArray[np.float64]
Vectors = list[NDArray[np.float32]]
Scores = dict[str, float]

SHARES = (0.02, 0.05, 0.15)  # of the parameters in a support


@dataclass(frozen=True)
class Collected:
    """What clients would have sent, and the truth about them.

    Attributes
    ----------
    averaged, latest : list of arrays
        Importance of the parameters after training, averaged over rounds and of the last round.
    received, during : list of arrays
        Importance at the model that clients received, and over the steps of their training as the
        paper has it; averaged over rounds.
    updates, parameters : list of arrays
        What the last local training changed, and made of the model.
    histograms : array
        How many samples of each class a client holds.
    data : list of Samples
        Its samples.
    layers : list of int
        Number of parameters in each layer.
    """

    averaged: Vectors
    latest: Vectors
    received: Vectors
    during: Vectors
    updates: Vectors
    parameters: Vectors
    histograms: NDArray[np.int64]
    data: list[Samples]
    layers: list[int]

    def first(self, count: int) -> Collected:
        """Return what the first clients sent."""
        names = ("averaged", "latest", "received", "during", "updates", "parameters")
        cut = {name: getattr(self, name)[:count] for name in (*names, "histograms", "data")}
        return replace(self, **cut)


def collect(config: RunConfig, clients: int, rounds: int) -> Collected:
    """Train the first clients together by FedAvg, and watch what matters to each."""
    task = load_task(config.task_spec())
    data = [task.client_data(i, config.num_clients).train for i in range(clients)]
    model = task.build_model()
    trainer, arrays = Trainer(model, threads=config.local.threads), read_arrays(model)
    beta, loss = PAST, functional.cross_entropy
    size = sum(parameter.numel() for parameter in model.parameters())
    averages = received = during = np.zeros((clients, size), dtype=np.float32)
    for number in range(1, rounds + 1):
        jobs = [
            Job(arrays, held, batch_seed(config.seed, str(i), number))
            for i, held in enumerate(data)
        ]
        settings = replace(train_settings(config, number), squares=1, squared_steps=0)
        outcomes = trainer.train(jobs, settings, Plain(config))
        stepwise = np.asarray(outcomes.squares).sum(axis=1)
        at_start = fisher_diagonals(model, loss, [arrays] * clients, data)
        latest = fisher_diagonals(model, loss, [own.arrays for own in outcomes], data)
        received, averages = averaged(received, at_start, beta), averaged(averages, latest, beta)
        during = averaged(during, stepwise, beta)
        before, trained = arrays, [outcome.arrays for outcome in outcomes]
        means = {name: np.mean([t[name] for t in trained], axis=0) for name in arrays}
        arrays = {name: mean.astype(arrays[name].dtype) for name, mean in means.items()}
    start = flat_floats(before)
    return Collected(
        list(averages),
        list(latest),
        list(received),
        list(during),
        [flat_floats(t) - start for t in trained],
        [flat_floats(t) for t in trained],
        histograms_of(data, task.num_classes),
        data,
        [parameter.numel() for parameter in model.parameters()],
    )


def histograms_of(data: Sequence[Samples], classes: int) -> NDArray[np.int64]:
    """Return how many samples of each class clients hold, one row each."""
    return np.array([np.bincount(held.y.numpy(), minlength=classes) for held in data])


def matrices(found: Collected, coverage: float, most: float) -> dict[str, tuple[Matrix, Scores]]:
    """Return each similarity matrix with the bytes that a client sends and its share of indices.

    K* is the mean over clients of what Algorithm 1 chooses, as in the paper. "Received" is
    importance at the model that clients received, "during" that over the steps of their training,
    as the paper has it; else it is that after training.
    """
    size = found.updates[0].size
    result = _overlaps_of_indices(found, size, coverage, most) | _signed(found, size)
    vectors = {
        "updates": found.updates,
        "parameters": found.parameters,
        "importance": found.averaged,
    }
    dense = {"bytes": 4.0 * size, "share": 1.0}
    for kind, values in vectors.items():
        result[f"cosine of {kind}"] = cosine_matrix(values), dense
    result["cosine of updates, centred"] = centred_cosines(gram_matrix(found.updates)), dense
    # All started from one model: distances of parameters are those of updates.
    for kind in ("updates", "importance"):
        result[f"Euclidean of {kind}"] = euclidean_matrix(vectors[kind]), dense
    truth = histogram_similarity(list(found.histograms))
    result["oracle"] = truth, {"bytes": 0.0, "share": 0.0}
    return result


def _overlaps_of_indices(
    found: Collected, size: int, coverage: float, most: float
) -> dict[str, tuple[Matrix, Scores]]:
    """Return the overlaps of supports; all but those per layer and of one round also centred."""
    limit = round(most * size)
    counts = {"K*": (coverage, limit), **{f"{100 * s:g} %": (1.0, round(s * size)) for s in SHARES}}
    result: dict[str, tuple[Matrix, Scores]] = {}

    def add(name: str, importance: Vectors, k: int, layers: list[int] | None = None) -> None:
        supports = [top_k_support(s, k, layers) if s.any() else None for s in importance]
        sent = float(np.mean([len(encode_support(s, size, 0)) for s in supports if s is not None]))
        scores = {"bytes": sent, "share": k / size}
        result[name] = overlaps(supports), scores
        result[f"{name}, centred"] = overlaps(supports, centred_overlap_matrix), scores

    places = {"": found.averaged, ", received": found.received, ", during": found.during}
    for place, importance in places.items():
        for name, (share, cap) in counts.items():
            k = round(np.mean([choose_k(s, share, cap) for s in importance if s.any()]))
            add(f"IOS, {name}{place}", importance, k)
    best = round(result["IOS, K*"][1]["share"] * size)
    add("IOS, K* per layer", found.averaged, best, found.layers)
    add("IOS, K* of one round", found.latest, best)
    return result


def _signed(found: Collected, size: int) -> dict[str, tuple[Matrix, Scores]]:
    """Return the overlaps of the largest changes of updates, with their signs."""
    result: dict[str, tuple[Matrix, Scores]] = {}
    for share in SHARES:
        k = round(share * size)
        codes = [top_k_changes(update, k) for update in found.updates]
        sent = [len(encode_signed_support(*split_codes(each), size, 0)) for each in codes]
        scores = {"bytes": float(np.mean(sent)), "share": k / size}
        matrix, name = signed_overlap_matrix(codes, threads=1), f"signed, {100 * share:g} %"
        result[name] = matrix, scores
        sizes = np.array([each.size for each in codes])
        products = matrix * np.sqrt(np.outer(sizes, sizes))
        result[f"{name}, centred"] = centred_cosines(products), scores
    return result


def overlaps(
    supports: Sequence[NDArray[np.int64] | None],
    compare: Callable[..., Matrix] = overlap_matrix,
) -> Matrix:
    """Return the overlaps of all pairs; a client to whom nothing matters is like nobody else.

    >>> overlaps([np.array([0, 1]), None, np.array([1, 2])])
    array([[1. , 0. , 0.5],
           [0. , 1. , 0. ],
           [0.5, 0. , 1. ]])
    """
    known = [i for i, support in enumerate(supports) if support is not None]
    matrix = np.eye(len(supports))
    told = [support for support in supports if support is not None]
    matrix[np.ix_(known, known)] = compare(told, threads=1)
    return matrix


def alignment(matrix: Matrix, histograms: NDArray[Any]) -> Scores:
    """Return how well a similarity agrees with the label histograms (tables 2 to 5)."""
    truth, clients = histogram_similarity(list(histograms)), len(histograms)
    scores = {f"R@{k}": recall_at(matrix, truth, k) for k in (4, 5, 8, 16) if k < clients - 1}
    scores["tau"] = kendall_agreement(matrix, truth)
    near = min(NEIGHBOURS, clients - 1)
    scores["JS"] = float(mixture_divergence(matrix, list(histograms), near).mean())
    return scores | cluster_quality(similarity_clusters(matrix).labels, histograms)


def cluster_quality(labels: NDArray[Any], histograms: NDArray[Any]) -> Scores:
    """Return how clear clusters are by the clients' labels; nothing of a single cluster.

    The silhouette is by the divergence of histograms; Davies-Bouldin and Calinski-Harabasz need
    vectors, which are the shares of the classes.
    """
    count = len(set(labels.tolist()))
    scores: Scores = {"clusters": float(count)}
    if not 1 < count < len(labels):
        return scores
    distances = np.clip(1 - histogram_similarity(list(histograms)), 0.0, None)
    np.fill_diagonal(distances, 0.0)
    shares = histograms / histograms.sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # two clusters with the same centre
        davies_bouldin = float(davies_bouldin_score(shares, labels))
    return scores | {
        "silhouette": float(silhouette_score(distances, labels, metric="precomputed")),
        "Davies-Bouldin": davies_bouldin,
        "Calinski-Harabasz": float(calinski_harabasz_score(shares, labels)),
    }


def donor_agreement(matrix: Matrix, worth: Matrix) -> Scores:
    """Return how well a similarity ranks donors by what they are worth (table 4)."""
    near = min(5, len(worth) - 1)
    return {
        "Shapley tau": kendall_agreement(matrix, worth),
        f"Shapley R@{near}": recall_at(matrix, worth, near),
    }
