"""How uneven a federation is, as two numbers: labels and quantity."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


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
