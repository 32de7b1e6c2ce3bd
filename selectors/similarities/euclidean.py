"""The Euclidean distance of all pairs of clients, for comparison, and a similarity made from it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .gram import Floats, gram_matrix

_ROUNDING = 1e-13  # of a squared distance, relative to the squared norms it is computed from


def distance_matrix(vectors: Sequence[ArrayLike]) -> Floats:
    """Return the distances of all pairs of vectors; equal vectors are at distance 0.

    >>> distance_matrix([[0, 0], [3, 4], [3, 4]])
    array([[0., 5., 5.],
           [5., 0., 0.],
           [5., 0., 0.]])
    """
    products = gram_matrix(vectors, centred=True)
    sizes = np.diag(products)
    sums = sizes[:, None] + sizes
    squares = sums - 2 * products
    return np.sqrt(np.where(squares <= _ROUNDING * sums, 0.0, squares))


def similarity_from_distance(distances: ArrayLike) -> Floats:
    """Return ``1 / (1 + d / m)`` for each distance d, where m is the median of all pairs.

    It falls from 1 at distance 0, is 0.5 at the median, and does not depend on the unit.

    >>> similarity_from_distance([[0, 1, 3], [1, 0, 1], [3, 1, 0]])[0]
    array([1.  , 0.5 , 0.25])
    """
    values = np.asarray(distances, dtype=np.float64)
    pairs = values[np.triu_indices(len(values), k=1)]
    typical = float(np.median(pairs)) if pairs.size else 0.0
    return np.asarray(1 / (1 + values / (typical or 1.0)))


def euclidean_matrix(vectors: Sequence[ArrayLike]) -> Floats:
    """Return the similarities of all pairs of vectors, from 0 to 1, by their distances.

    >>> euclidean_matrix([[0, 0], [3, 4]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    return similarity_from_distance(distance_matrix(vectors))
