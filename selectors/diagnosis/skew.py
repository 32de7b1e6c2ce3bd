"""How much more clients' labels differ than chance makes them, by one step of the output layer.

The gradient of the cross-entropy by the output layer's bias is the mean of ``p - y``. So after one
step over n samples, over the learning rate, the bias shows a client's share of each class less what
the model predicts (HiCS-FL, section 3.2). Samples that are drawn alike make shares vary with
``p (1 - p) / n``; what clients vary beyond that is skew.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

SKEWED = 2.5  # times chance: predictions vary too, at most as much as labels
UNEVEN = 0.25  # Gini index of sizes


def dispersion(shares: ArrayLike, samples: ArrayLike, variance: float) -> float:
    """Return the median over clients of ``n |s - mean(s)|^2 / variance``: about 1 by chance.

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
    squares = np.sum((rows - rows.mean(axis=0)) ** 2, axis=1) * len(rows) / (len(rows) - 1)
    return float(np.median(np.asarray(samples) * squares) / variance)


def gini(sizes: ArrayLike) -> float:
    """Return how uneven sizes are: 0 if all are equal, 1 if one has everything.

    >>> gini([5, 5, 5]), round(gini([0, 0, 0, 8]), 2)
    (0.0, 0.75)
    """
    ordered = np.sort(np.asarray(sizes, dtype=np.float64))
    count, total = len(ordered), ordered.sum()
    ranks = 2 * np.arange(1, count + 1) - count - 1
    return float(ranks @ ordered / (count * total)) if total else 0.0
