"""Inner products of all pairs of long vectors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_COLUMNS = 65536  # multiplied at a time, so that vectors need no copy as a whole


def gram_matrix(vectors: Sequence[ArrayLike], centred: bool = False) -> Floats:
    """Return the inner products of all pairs, summed in float64.

    Parameters
    ----------
    vectors : sequence of n arrays, shape (d,), or an array of rows
        Finite and of one length.
    centred : bool
        Whether to subtract the vectors' mean first. Differences between vectors stay as they are
        and lose fewer digits.

    Examples
    --------
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
