"""How well a similarity finds the best donors: measures for evaluation.

*Index-Overlap Similarity* (IOS), section 6.2, and Jia et al., *Efficient Task-Specific Data
Valuation for Nearest Neighbor Algorithms* (2019), for KNN-Shapley.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least

Floats = NDArray[np.float64]
Samples = tuple[ArrayLike, ArrayLike]  # inputs and labels


def knn_shapley(correct: ArrayLike, k: int) -> Floats:
    """Return the exact Shapley values of training samples for a k-nearest-neighbour classifier.

    The value of a set of samples is the share of correct labels among its k nearest ones, of which
    a set of fewer than k has fewer.

    - ``correct`` (shape (n,) or (tests, n)): whether each training sample has the label of the test
      sample, the nearest sample first; a row for each test sample if there are several.
    - ``k``: number of neighbours.

    >>> knn_shapley([1, 0, 1], k=1).round(4).tolist()
    [0.8333, -0.1667, 0.3333]
    """
    right = np.asarray(correct, dtype=np.float64)
    if right.ndim not in (1, 2) or right.shape[-1] == 0:
        raise ValueError(f"correct: expected one or more samples in a row, got {right.shape}")
    at_least(1, k=k)
    samples = right.shape[-1]
    rank = np.arange(1, samples)
    steps = (right[..., :-1] - right[..., 1:]) / k * (np.minimum(k, rank) / rank)
    farthest = right[..., -1:] * min(k, samples) / (k * samples)
    values = np.concatenate([steps, farthest], axis=-1)
    return np.cumsum(values[..., ::-1], axis=-1)[..., ::-1]


def donor_values(target: Samples, donors: Sequence[Samples], k: int = 5) -> Floats:
    """Return what each donor's data are worth to a target: the sum of its samples' Shapley values.

    All donors' samples together are what a k-nearest-neighbour classifier, by Euclidean distance,
    labels the target's samples with; the values are means over these.

    - ``target`` (shapes (m, ...) and (m,)): inputs and labels that the donors are to help with.
    - ``donors``: inputs and labels of each donor.
    - ``k``: number of neighbours.

    >>> same, other = ([[0.0], [0.1]], [1, 1]), ([[0.2], [9.0]], [0, 0])
    >>> values = donor_values(([[0.05]], [1]), [same, other], k=1)
    >>> bool(values[0] > values[1])
    True
    """
    if not donors:
        raise ValueError("donors: expected one or more")
    inputs, labels = _flat(target)
    parts = [_flat(donor) for donor in donors]
    pool, truth = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    owner = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    distances = (pool**2).sum(axis=1) - 2 * inputs @ pool.T  # but for a constant in each row
    nearest = np.argsort(distances, axis=1, kind="stable")
    worth = knn_shapley(truth[nearest] == labels[:, None], k)
    return np.bincount(owner[nearest].ravel(), worth.ravel(), len(parts)) / len(labels)


def recall_at(similarity: ArrayLike, oracle: ArrayLike, k: int) -> float:
    """Return the mean share of each client's ``k`` nearest by the oracle that are found.

    Of equals, the first count as nearer, in both.
    """
    scores, truth = _checked_pair(similarity, oracle)
    if not 1 <= k < len(scores):
        raise ValueError(f"k: expected 1 to {len(scores) - 1}, the other clients, got {k}")
    found, wanted = _nearest(scores, k), _nearest(truth, k)
    return float((found & wanted).sum(axis=1).mean() / k)


def kendall_tau(a: ArrayLike, b: ArrayLike) -> float:
    """Return Kendall's tau-b of two rankings of the same things; 0 if one ranks nothing."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"a, b: expected equally many scores, got {first.shape}, {second.shape}")
    pairs = np.triu_indices(first.size, k=1)
    orders = [np.sign(scores[:, None] - scores)[pairs] for scores in (first, second)]
    ranked = np.prod([np.count_nonzero(order) for order in orders], dtype=np.float64)
    return float(orders[0] @ orders[1] / np.sqrt(ranked)) if ranked else 0.0


def kendall_agreement(similarity: ArrayLike, oracle: ArrayLike) -> float:
    """Return the mean of Kendall's tau over clients, of how they rank all others (table 4)."""
    return float(np.mean(kendall_by_client(similarity, oracle)))


def kendall_by_client(similarity: ArrayLike, oracle: ArrayLike) -> list[float]:
    """Return Kendall's tau of how each client ranks all others.

    >>> oracle = [[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]]
    >>> kendall_by_client([[1, 0.1, 0.9], [0.9, 1, 0.2], [0.1, 0.2, 1]], oracle)
    [-1.0, 1.0, 1.0]
    """
    scores, truth = _checked_pair(similarity, oracle)
    others = ~np.eye(len(scores), dtype=bool)
    return [kendall_tau(scores[i, others[i]], truth[i, others[i]]) for i in range(len(scores))]


def _flat(samples: Samples) -> tuple[Floats, NDArray[Any]]:
    inputs, labels = np.asarray(samples[0], dtype=np.float64), np.asarray(samples[1])
    if len(labels) == 0 or labels.shape != inputs.shape[:1]:
        raise ValueError(f"samples: expected a label each, got {labels.shape} of {inputs.shape}")
    return inputs.reshape(len(inputs), -1), labels


def _nearest(scores: Floats, k: int) -> NDArray[np.bool_]:
    """Return, a row for each client, who its ``k`` nearest others are."""
    others = scores.copy()
    np.fill_diagonal(others, -np.inf)
    ranking = np.argsort(-others, axis=1, kind="stable")
    chosen = np.zeros(scores.shape, dtype=np.bool_)
    np.put_along_axis(chosen, ranking[:, :k], True, axis=1)
    return chosen


def _checked_pair(similarity: ArrayLike, oracle: ArrayLike) -> tuple[Floats, Floats]:
    scores, truth = np.asarray(similarity, dtype=np.float64), np.asarray(oracle, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or len(scores) < 2:
        raise ValueError(f"similarity: expected n x n for two or more, got {scores.shape}")
    if truth.shape != scores.shape:
        raise ValueError(f"oracle: expected {scores.shape} as similarity, got {truth.shape}")
    return scores, truth
