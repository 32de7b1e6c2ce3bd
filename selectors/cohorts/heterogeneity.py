"""How different the members of a cohort's clusters are: J of eq. 1 (Auxo, section 3.1)."""

import numpy as np
from numpy.typing import ArrayLike


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
