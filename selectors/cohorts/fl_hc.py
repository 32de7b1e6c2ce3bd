"""FL+HC: after some joint rounds, hierarchical clustering of everybody's update, once.

Briggs, Fan and Andras, 2020: *Federated learning with hierarchical clustering of local updates*.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import AgglomerativeClustering

from cohorts.projection import unit_rows


def hierarchical_clusters(
    updates: ArrayLike, threshold: float = 0.0, count: int = 0, metric: str = "cosine"
) -> NDArray[np.intp]:
    """Return the cluster of each client by average linkage of their updates.

    Parameters
    ----------
    updates : array, one row a client
    threshold : float
        Clusters farther apart than this are not merged; used where ``count`` is 0.
    count : int
        Number of clusters, where it is known.
    metric : str
        "cosine" or "euclidean".

    Examples
    --------
    >>> updates = [[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 2.0]]
    >>> hierarchical_clusters(updates, count=2).tolist()
    [0, 0, 1, 1]
    >>> hierarchical_clusters(updates, threshold=0.5).tolist()
    [0, 0, 1, 1]
    """
    points = unit_rows(updates) if metric == "cosine" else np.asarray(updates, dtype=np.float64)
    if len(points) < 2:
        return np.zeros(len(points), dtype=np.intp)
    # Of unit vectors the cosine distance is half the squared Euclidean one; zero rows are allowed.
    model = AgglomerativeClustering(
        n_clusters=min(count, len(points)) if count else None,
        distance_threshold=None if count else _euclidean(threshold, metric),
        linkage="average",
    )
    labels = model.fit(points).labels_
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _euclidean(threshold: float, metric: str) -> float:
    return float(np.sqrt(2 * threshold)) if metric == "cosine" else threshold
