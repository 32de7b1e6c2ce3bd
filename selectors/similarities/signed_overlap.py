"""Signed overlap: the largest changes of an update, and the sign of the change at each of them.

It takes one bit more per index than an overlap. The bit shows the server the direction in which the
parameter moved, but not how far.

A signed support is one array of codes: ``2 * index`` if the parameter fell, one more if it grew.
Codes increase with the indices, as supports do.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .index_overlap import checked_support, top_k_support
from .intersections import intersection_sizes

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Signs = NDArray[np.int8]


def signed_overlap(a: ArrayLike, signs_a: ArrayLike, b: ArrayLike, signs_b: ArrayLike) -> float:
    """Return the sum of sign products over common indices, over the root of both sizes.

    - ``a``, ``b``: supports, strictly increasing.
    - ``signs_a``, ``signs_b``: of the change at each index.

    >>> signed_overlap([0, 1, 4], [1, -1, 1], [1, 4, 9], [-1, -1, 1])
    0.0
    >>> signed_overlap([0, 1], [1, -1], [0, 1], [-1, 1])
    -1.0
    """
    left, right = checked_support(a, "a"), checked_support(b, "b")
    signs = [np.asarray(each, dtype=np.float64) for each in (signs_a, signs_b)]
    if signs[0].shape != left.shape or signs[1].shape != right.shape:
        raise ValueError(f"signs: expected one per index, {left.size} and {right.size}")
    _, here, there = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return float(signs[0][here] @ signs[1][there] / np.sqrt(left.size * right.size))


def top_k_changes(update: ArrayLike, k: int, layers: Sequence[int] | None = None) -> Codes:
    """Return the codes of the ``k`` largest changes of an update; fewer if fewer are not zero.

    - ``update`` (shape (M,)): finite, not all zero. Of equally large changes, those of lower
      indices are taken.
    - ``k``, ``layers``: as for :func:`top_k_support`.
    """
    changes = np.asarray(update)
    support = top_k_support(np.abs(changes), k, layers)
    moved = support[changes[support] != 0]
    return signed_codes(moved, np.sign(changes[moved]).astype(np.int8))


def signed_codes(indices: ArrayLike, signs: ArrayLike) -> Codes:
    """Return a support and the signs of its changes as codes."""
    support = np.asarray(indices, dtype=np.int64)
    values = np.asarray(signs)
    if values.shape != support.shape or not np.isin(values, (-1, 1)).all():
        raise ValueError(f"signs: expected -1, 1 for each of {support.size} indices, got {signs!r}")
    return np.asarray(2 * support + (values > 0))


def split_codes(codes: ArrayLike) -> tuple[Indices, Signs]:
    """Return the indices and signs that codes stand for."""
    array = np.asarray(codes, dtype=np.int64)
    return array >> 1, (2 * (array & 1) - 1).astype(np.int8)


def signed_overlap_matrix(codes: Iterable[ArrayLike], threads: int | None = None) -> Floats:
    """Return the signed overlaps of all pairs, from -1 to 1; the diagonal is 1.

    Of the indices that two clients have in common, those with one sign are counted as common codes;
    all others have opposite signs.

    - ``codes``: one per client.
    - ``threads``: how many to count with; as many as there are processors if not given.

    >>> clients = [signed_codes([0, 1], [1, 1]), signed_codes([0, 1], [1, -1])]
    >>> clients.append(signed_codes([0, 1], [-1, -1]))
    >>> signed_overlap_matrix(clients).tolist()[0]
    [1.0, 0.0, -1.0]
    """
    checked = [checked_codes(each, f"codes[{i}]") for i, each in enumerate(codes)]
    sizes = np.array([each.size for each in checked], dtype=np.float64)
    alike = intersection_sizes(checked, threads)
    common = intersection_sizes([each >> 1 for each in checked], threads)
    return (2 * alike - common) / np.sqrt(np.outer(sizes, sizes))


def checked_codes(codes: ArrayLike, name: str = "codes") -> Codes:
    """Return codes as an increasing array; an index with both signs is an error."""
    array = checked_support(codes, name)
    indices = array >> 1
    if np.any(indices[1:] == indices[:-1]):
        raise ValueError(f"{name}: expected one sign per index")
    return array
