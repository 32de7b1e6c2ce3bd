"""Clusters of clients by any similarity, with affinity propagation.

It finds the number of clusters by itself (Frey and Dueck, 2007). If it does not converge, there is
one cluster, and the result says so.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning

_DAMPINGS = (0.5, 0.75, 0.9)  # the next where the messages swing and do not settle


@dataclass(frozen=True)
class SimilarityClusters:
    """The clusters, and whether they are to be trusted."""

    labels: NDArray[np.intp]  # cluster of each client, from 0 on
    exemplars: NDArray[np.intp]  # position of the client that stands for each cluster
    converged: bool  # if not, all are in one cluster: worth a warning


def similarity_clusters(
    similarity: ArrayLike, iterations: int = 200, seed: int = 0
) -> SimilarityClusters:
    """Return clusters by affinity propagation.

    - ``similarity``: larger is more alike; the diagonal is not looked at.
    - ``iterations``: at most.

    >>> alike = [[1, 0.9, 0.1, 0.2], [0.9, 1, 0.1, 0.1], [0.1, 0.1, 1, 0.8], [0.2, 0.1, 0.8, 1]]
    >>> similarity_clusters(alike).labels.tolist()
    [0, 0, 1, 1]
    """
    matrix = np.asarray(similarity, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.all(np.isfinite(matrix)):
        raise ValueError(f"similarity: expected a square of finite numbers, got {matrix.shape}")
    others = matrix[~np.eye(len(matrix), dtype=np.bool_)]
    if others.size == 0 or np.ptp(others) <= 1e-9:  # one client, or all the same to each other
        return _one_cluster(len(matrix), converged=True)
    for damping in _DAMPINGS:
        method = AffinityPropagation(
            damping=damping,
            max_iter=iterations,
            preference=float(np.median(others)),
            affinity="precomputed",
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the return value says so
            fitted = method.fit(matrix)
        labels = np.asarray(fitted.labels_, dtype=np.intp)
        if not np.any(labels < 0) and fitted.n_iter_ < iterations:
            exemplars = np.asarray(fitted.cluster_centers_indices_, dtype=np.intp)
            return SimilarityClusters(labels, exemplars, converged=True)
    return _one_cluster(len(matrix), converged=False)


def _one_cluster(clients: int, converged: bool) -> SimilarityClusters:
    labels = np.zeros(clients, dtype=np.intp)
    return SimilarityClusters(labels, labels[: min(clients, 1)].copy(), converged)
