"""The cosine of all pairs of clients, for comparison: it needs the values that IOS does not."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .gram import Floats, gram_matrix


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
