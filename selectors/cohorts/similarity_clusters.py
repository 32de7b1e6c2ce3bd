"""Clusters of clients by how alike they are, however many there are (affinity propagation).

Frey and Dueck, 2007. Used by Index-Overlap Similarity (section 5): the number of clusters follows
from the similarities; nothing has to be said beforehand.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning


@dataclass(frozen=True)
class Clusters:
    """The cluster of each client, from 0 on, and whether the algorithm came to an end."""

    labels: NDArray[np.intp]
    converged: bool


def similarity_clusters(
    similarity: ArrayLike, damping: float = 0.5, seed: int = 0, preference: float | None = None
) -> Clusters:
    """Return clusters by affinity propagation; one cluster if it does not converge.

    Parameters
    ----------
    similarity : array, shape (n, n)
        Of all pairs, larger means more alike.
    damping : float
        Of the messages, from 0.5 to below 1.
    seed : int
        Breaks ties.
    preference : float, optional
        How ready a client is to stand for others; the median of all pairs by default.

    Examples
    --------
    >>> alike = [[1, 0.9, 0.1, 0.0], [0.9, 1, 0.0, 0.1], [0.1, 0.0, 1, 0.8], [0.0, 0.1, 0.8, 1]]
    >>> similarity_clusters(alike)
    Clusters(labels=array([0, 0, 1, 1]), converged=True)
    """
    matrix = np.asarray(similarity, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"similarity: expected a square matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("similarity: expected finite numbers")
    pairs = matrix[~np.eye(len(matrix), dtype=bool)]
    if pairs.size == 0 or np.ptp(pairs) == 0:  # nobody to compare, or all alike
        return Clusters(np.zeros(len(matrix), dtype=np.intp), True)
    model = AffinityPropagation(
        damping=damping,
        preference=float(np.median(pairs)) if preference is None else preference,
        affinity="precomputed",
        random_state=seed,
        max_iter=500,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = model.fit(matrix).labels_
    if (labels < 0).any():
        return Clusters(np.zeros(len(matrix), dtype=np.intp), False)
    return Clusters(_numbered_as_they_come(labels), True)


def _numbered_as_they_come(labels: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the same clusters, numbered in the order in which they first occur."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
