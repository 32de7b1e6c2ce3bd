"""How different the members of a cohort are (Auxo, eq. 1), and how much less its clusters."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


def heterogeneity(points: ArrayLike, labels: ArrayLike) -> float:
    """Return J of eq. 1, the sum of squared differences within the clusters.

    ``J = sum over clusters m of 1 / (2 |m|) * sum over i, j in m of ||x_i - x_j||^2``, which is the
    sum of squared distances to the centres of the clusters, and is computed as that.

    - ``points`` (one row per client)
    - ``labels``: the cluster of each; -1 for those in none, which do not count.

    >>> points = [[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]]
    >>> heterogeneity(points, [0, 0, 1]), heterogeneity(points, [0, 0, -1])
    (2.0, 2.0)
    """
    rows, groups = np.asarray(points, dtype=np.float64), np.asarray(labels)
    if rows.ndim != 2 or groups.shape != rows.shape[:1]:
        raise ValueError(f"labels: expected one per row of {rows.shape}, got {groups.shape}")
    if not np.all(np.isfinite(rows)):
        raise ValueError("points: expected finite numbers")
    clusters = [rows[groups == label] for label in np.unique(groups[groups >= 0])]
    return float(sum(np.sum((members - members.mean(axis=0)) ** 2) for members in clusters))


@dataclass(frozen=True)
class Gain:
    """What a split along the clusters of one round would gain."""

    # Mean squared difference to the centre of all, and to the centres of the clusters
    before: float
    after: float
    parts: int  # number of clusters
    smallest_share: float  # share of the participants that the smallest cluster holds


def gain_of(points: ArrayLike, labels: NDArray[np.intp], parts: int) -> Gain:
    """Return what a split of labelled participants would gain; those without a label are left out.

    >>> gain_of([[0.0], [0.0], [4.0], [4.0]], np.array([0, 0, 1, 1]), 2)
    Gain(before=4.0, after=0.0, parts=2, smallest_share=0.5)
    """
    labelled = labels >= 0
    count = int(np.count_nonzero(labelled))
    if count == 0:
        return Gain(0.0, 0.0, parts, 0.0)
    before = heterogeneity(points, np.where(labelled, 0, -1)) / count
    after = heterogeneity(points, labels) / count
    sizes = np.bincount(labels[labelled], minlength=parts)
    return Gain(before, after, parts, float(sizes.min() / count))
