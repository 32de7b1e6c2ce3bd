"""How uneven a federation is: skew of labels and of quantity.

If counts are known, both are a number from 0 to 1. Otherwise one step of the output layer shows how
much more labels differ than by chance: the gradient of the cross-entropy by the bias is the mean of
``p - y``. After one step over n samples, the change of the bias divided by the learning rate is a
client's share of each class minus the model's prediction (HiCS-FL, section 3.2). With random
samples, shares have the variance ``p (1 - p) / n``; the variance beyond that is skew.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

SKEWED = 2.5  # times chance: predictions vary too, at most as much as labels
UNEVEN = 0.25  # Gini index of sizes
_NEAR = 3.0  # times the median distance from the middle


def usual(rows: ArrayLike) -> NDArray[np.float64]:
    """Return the mean of the rows near the median row: a few liars do not move it far.

    >>> usual([[1.0], [2.0], [3.0], [4.0], [1e9]]).tolist()
    [2.5]
    """
    values = np.asarray(rows, dtype=np.float64)
    far = np.linalg.norm(values - np.median(values, axis=0), axis=1)
    return np.asarray(values[far <= _NEAR * np.median(far)].mean(axis=0))


def dispersion(shares: ArrayLike, samples: ArrayLike, variance: float) -> float:
    """Return the median over clients of ``n |s - m|^2 / variance``: about 1 by chance.

    - m: the :func:`usual` shares.
    - ``shares``: one row per client, such as the share of each class, up to a common constant.
    - ``samples``: how many they are of.
    - ``variance``: of a single sample, summed over the columns.

    >>> rng = np.random.default_rng(0)
    >>> alike = rng.multinomial(50, np.full(10, 0.1), size=20) / 50
    >>> one_class_each = np.eye(10)[np.arange(20) % 10]
    >>> [round(dispersion(rows, np.full(20, 50), 0.9)) for rows in (alike, one_class_each)]
    [1, 53]
    """
    rows: NDArray[np.float64] = np.asarray(shares, dtype=np.float64)
    squares = np.sum((rows - usual(rows)) ** 2, axis=1) * len(rows) / (len(rows) - 1)
    return float(np.median(np.asarray(samples) * squares) / variance)


def label_skew(counts: Sequence[Sequence[float]]) -> float:
    r"""Return how far the classes of clients are from those of all, 0 to 1.

    .. math:: \frac{1}{2 K} \sum_k \sum_y |p_k(y) - p(y)|

    This is the mean total variation distance; row k of ``counts`` holds client k's classes.

    >>> label_skew([[5, 5], [3, 3]]), label_skew([[6, 0], [0, 6]])
    (0.0, 0.5)
    """
    table = np.array([row for row in counts if any(row)], dtype=np.float64)
    if not len(table):
        return 0.0
    shares, overall = table / table.sum(axis=1, keepdims=True), table.sum(axis=0) / table.sum()
    return float(np.abs(shares - overall).sum(axis=1).mean() / 2)


def quantity_skew(samples: ArrayLike) -> float:
    r"""Return how unevenly samples are spread over clients: Gini's index, 0 (equal) to 1.

    .. math:: \frac{\sum_i \sum_j |n_i - n_j|}{2 K \sum_i n_i}

    >>> quantity_skew([7, 7, 7]), quantity_skew([0, 0, 0, 8])
    (0.0, 0.75)
    """
    sorted_up = np.sort(np.asarray(samples, dtype=np.float64))
    total, count = sorted_up.sum(), sorted_up.size
    if not total:
        return 0.0
    return float((2 * np.arange(1, count + 1) - count - 1) @ sorted_up / (count * total))


def told_by_labels(shifts: ArrayLike, groups: ArrayLike) -> float:
    """Return how far labels alone separate groups of clients: 1 completely, about 0 by chance.

    The share of clients whose nearest neighbour is in their own group, beyond chance. Neighbours
    are those with the smallest angle between the updates of their output layer's bias.

    - ``shifts``: the update of the bias, one row per client.
    - ``groups``: the group of each client.

    >>> classes = np.eye(4)[[0, 0, 1, 1, 2, 2, 3, 3]]
    >>> told_by_labels(classes, [0, 0, 0, 0, 1, 1, 1, 1])
    1.0
    >>> told_by_labels(classes, [0, 1, 0, 1, 0, 1, 0, 1])
    -1.0
    """
    rows, labels = np.asarray(shifts, dtype=np.float64), np.asarray(groups)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -np.inf)
    right = float(np.mean(labels[cosines.argmax(axis=1)] == labels))
    chance = float(np.sum((np.unique(labels, return_counts=True)[1] / labels.size) ** 2))
    return (right - chance) / (1 - chance) if chance < 1 else 0.0
