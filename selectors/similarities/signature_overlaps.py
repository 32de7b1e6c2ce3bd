"""How alike clients are by their signatures: exact where supports are held, else estimated."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from .gram import Floats, centred_cosines
from .index_overlap import overlap_matrix
from .minhash import agreements, overlap_from_jaccard
from .signed_overlap import signed_overlap_matrix

Held = Mapping[int, ArrayLike]


def overlaps_by_signature(
    signatures: ArrayLike, counts: ArrayLike, held: Held | None = None
) -> Floats:
    """Return the overlaps of all pairs of supports: exact where held, else by their signatures.

    - ``signatures`` (shape (n, h)): one row per client.
    - ``counts`` (shape (n,)): how many indices each of their supports has.
    - ``held``: the supports that are known, by row. All their pairs are scored at once, which is
      faster than one candidate pair after the other.

    >>> signatures, counts = [[1, 2, 3, 4], [1, 2, 7, 8]], [10, 10]
    >>> overlaps_by_signature(signatures, counts).round(3).tolist()
    [[1.0, 0.667], [0.667, 1.0]]
    >>> overlaps_by_signature(signatures, counts, {0: range(10), 1: range(3, 13)}).tolist()
    [[1.0, 0.7], [0.7, 1.0]]
    """
    sizes = np.asarray(counts, dtype=np.float64)
    overlaps = overlap_from_jaccard(agreements(np.asarray(signatures)), (sizes[:, None], sizes))
    result = np.asarray(np.minimum(overlaps, 1.0))
    if held:
        rows = list(held)
        result[np.ix_(rows, rows)] = overlap_matrix(held.values())
    return result


def centred_overlaps_by_signature(
    signatures: ArrayLike, counts: ArrayLike, held: Held | None = None
) -> Floats:
    """Return :func:`centred_overlap_matrix` of supports of which only signatures may be known.

    The numbers of common indices follow from the overlaps, and the centred overlaps from these.

    - ``signatures``, ``counts``, ``held``: as for :func:`overlaps_by_signature`.

    >>> signatures, counts = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 6, 7, 8]], [10, 10, 10]
    >>> centred_overlaps_by_signature(signatures, counts).round(3).tolist()[0]
    [1.0, 1.0, -1.0]
    """
    sizes = np.asarray(counts, dtype=np.float64)
    overlaps = overlaps_by_signature(signatures, sizes, held)
    return centred_cosines(overlaps * np.sqrt(np.outer(sizes, sizes)))


def signed_overlaps_by_signature(
    signatures: ArrayLike, counts: ArrayLike, held: Held | None = None
) -> Floats:
    """Return the signed overlaps of all pairs: exact where codes are held, else by signatures.

    Places that agree in all bits count for, those that agree in all bits but the lowest against.

    - ``signatures`` (shape (n, h)): from :meth:`Hashing.sign_changes`, one row per client.
    - ``counts`` (shape (n,)): how many changes each of them is of.
    - ``held``: the codes that are known, by row.

    >>> signatures = np.array([[3, 5, 7, 9], [3, 5, 7, 9], [2, 4, 6, 8]], dtype=np.uint32)
    >>> signed_overlaps_by_signature(signatures, [10, 10, 10]).tolist()[0]
    [1.0, 1.0, -1.0]
    """
    rows, sizes = np.asarray(signatures), np.asarray(counts, dtype=np.float64)
    alike, common = agreements(rows), agreements(rows | 1)
    overlaps = overlap_from_jaccard(common, (sizes[:, None], sizes))
    signs = np.divide(2 * alike - common, common, out=np.zeros_like(common), where=common > 0)
    result = np.minimum(overlaps, 1.0) * signs
    if held:
        positions = list(held)
        result[np.ix_(positions, positions)] = signed_overlap_matrix(held.values())
    return np.asarray(result)
