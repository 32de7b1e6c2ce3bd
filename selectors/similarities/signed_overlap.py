"""Signed overlap: important indices, and the sign of the change at each of them.

One bit more per index than an overlap. It tells the server the direction in which each important
parameter moved, but not how far.
"""

import numpy as np
from numpy.typing import ArrayLike

from .index_overlap import checked_support


def signed_overlap(a: ArrayLike, signs_a: ArrayLike, b: ArrayLike, signs_b: ArrayLike) -> float:
    """Return the sum of sign products over common indices, over the root of both sizes.

    1 for the same support with the same signs, -1 with all signs opposite, 0 if nothing is common.

    Parameters
    ----------
    a, b : arrays of int
        Supports, strictly increasing.
    signs_a, signs_b : arrays of -1, 0 or 1
        Of the change at each index.

    Examples
    --------
    >>> signed_overlap([0, 1, 4], [1, -1, 1], [1, 4, 9], [-1, -1, 1])
    0.0
    >>> signed_overlap([0, 1], [1, -1], [0, 1], [-1, 1])
    -1.0
    """
    left, right = checked_support(a, "a"), checked_support(b, "b")
    signs_left, signs_right = (
        _checked_signs(signs_a, left.size),
        _checked_signs(signs_b, right.size),
    )
    _, in_left, in_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    total = float(signs_left[in_left] @ signs_right[in_right])
    return total / float(np.sqrt(left.size * right.size))


def _checked_signs(signs: ArrayLike, count: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    values = np.asarray(signs, dtype=np.float64)
    if values.shape != (count,) or not np.isin(values, (-1.0, 0.0, 1.0)).all():
        raise ValueError(f"signs: expected -1, 0 or 1 for each of {count} indices, got {signs!r}")
    return values
