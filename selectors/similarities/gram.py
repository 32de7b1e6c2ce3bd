"""Inner products, cosines and distances of all pairs of long vectors.

The cosine and the Euclidean distance compare the values of updates, which IOS does not need.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_COLUMNS = 65536  # multiplied at a time, so that vectors need no copy as a whole
_ROUNDING = 1e-7  # of a length that is left of vectors, relative to the longest
_EQUAL = 1e-13  # of a squared distance, relative to the squared norms it is computed from


def gram_matrix(vectors: Sequence[ArrayLike], centred: bool = False) -> Floats:
    """Return the inner products of all pairs, summed in float64.

    - ``vectors`` (shape (d,)): finite and of one length.
    - ``centred``: whether to subtract the vectors' mean first. Differences between vectors stay as
      they are and lose fewer digits.

    >>> gram_matrix([[1, 2], [0, 3]])
    array([[5., 6.],
           [6., 9.]])
    """
    rows = [np.asarray(vector) for vector in vectors]
    shapes = {row.shape for row in rows}
    if len(shapes) > 1 or any(row.ndim != 1 for row in rows):
        raise ValueError(f"vectors: expected flat arrays of one length, got {sorted(shapes)}")
    total = np.zeros((len(rows), len(rows)))
    for start in range(0, rows[0].size if rows else 0, _COLUMNS):
        block = np.array([row[start : start + _COLUMNS] for row in rows], dtype=np.float64)
        if centred:
            block -= block.mean(axis=0)
        total += block @ block.T
    if not np.isfinite(total).all():
        raise ValueError("vectors: expected finite numbers whose squares are finite too")
    return total


def centred_cosines(products: ArrayLike) -> Floats:
    """Return the cosines of all pairs of vectors after their mean is subtracted.

    Only the inner products are needed: those of the centred vectors follow from them. A vector that
    is the mean itself has no direction left: its cosine to all others is 0. The diagonal is 1.

    - ``products`` (shape (n, n)): inner products of all pairs, as :func:`gram_matrix` returns them.

    >>> centred_cosines(gram_matrix([[1, 1], [1, 1], [1, 3]])).round(3).tolist()[0]
    [1.0, 1.0, -1.0]
    """
    matrix = np.array(products, dtype=np.float64)
    if not matrix.size:
        return np.empty((0, 0))
    shared, longest = matrix.mean(axis=1), np.sqrt(np.abs(np.diag(matrix)).max())
    mean = matrix.mean()
    matrix -= shared[:, None]  # the product of each vector with the mean
    matrix -= shared
    matrix += mean
    lengths = np.sqrt(np.clip(np.diag(matrix), 0.0, None))
    average = lengths <= _ROUNDING * longest
    lengths[average] = 1.0
    matrix /= np.outer(lengths, lengths)
    matrix[average] = matrix[:, average] = 0.0
    np.fill_diagonal(matrix, 1.0)
    return np.clip(matrix, -1.0, 1.0, out=matrix)


def cosine_matrix(vectors: Sequence[ArrayLike]) -> Floats:
    """Return the cosines of all pairs of vectors, from -1 to 1; the diagonal is 1.

    A vector of zeros has no direction: its cosine to all others is 0.

    - ``vectors`` (shape (d,)): say, the clients' importances, gradients or updates.

    >>> cosine_matrix([[1, 0], [2, 0], [0, 5], [-1, 0]])[0]
    array([ 1.,  1.,  0., -1.])
    """
    products = gram_matrix(vectors)
    norms = np.sqrt(np.diag(products))
    norms[norms == 0] = 1.0
    cosines = np.clip(products / norms[:, None] / norms, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return cosines


def distance_matrix(vectors: Sequence[ArrayLike]) -> Floats:
    """Return the distances of all pairs of vectors; equal vectors are at distance 0."""
    products = gram_matrix(vectors, centred=True)
    sizes = np.diag(products)
    sums = sizes[:, None] + sizes
    squares = sums - 2 * products
    return np.sqrt(np.where(squares <= _EQUAL * sums, 0.0, squares))


def similarity_from_distance(distances: ArrayLike) -> Floats:
    """Return ``1 / (1 + d / m)`` for each distance d, where m is the median of all pairs.

    It falls from 1 at distance 0, is 0.5 at the median, and does not depend on the unit.
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
