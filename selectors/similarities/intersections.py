"""How many members all pairs of index sets share, counted exactly.

The sets are the rows of a sparse 0/1 matrix A, and the counts are A A^T, computed by blocks of
columns. In a block, A is multiplied with its dense transpose, in which three neighbouring sets
share a number: each count takes some bits of the mantissa, and one multiplication counts for three
sets. A block is so short that no count overflows into the next. If there are only few columns, the
dense product is faster.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Counts = NDArray[np.int64]

_SHARING = 3  # sets in one number


@dataclass(frozen=True)
class _Layout:
    """How sets share numbers, and how much is multiplied at a time."""

    dtype: type[np.floating[Any]]  # whose mantissa holds three counts
    bits: int  # of one count
    # A block of columns is made of whole cells, and is as long as its counts and its cap allow
    cell: int
    block: int
    # Columns of the dense factor that are multiplied at a time, at most: what a cache holds
    width: int

    @property
    def limit(self) -> int:
        """The largest count."""
        return int(2**self.bits - 1)


# Many sets: the product dominates. Few: the calls do, so that longer blocks are better.
_MANY = _Layout(np.float32, bits=8, cell=255, block=2040, width=96)
_FEW = _Layout(np.float64, bits=17, cell=4096, block=16384, width=96)
_FROM = 64
_DENSE = 1536  # columns up to which A is multiplied as it is


def intersection_sizes(supports: Sequence[Indices], threads: int | None = None) -> Counts:
    """Return how many indices each pair of sets has in common.

    - ``supports``: strictly increasing indices from 0 on, at least one in each.
    - ``threads``: how many to use; as many as there are processors if not given.

    >>> intersection_sizes([np.array([1, 2, 5]), np.array([2, 5, 9, 10])])
    array([[3, 2],
           [2, 4]])
    """
    number = len(supports)
    if number == 0:
        return np.zeros((0, 0), dtype=np.int64)
    supports = _relabelled(supports)
    size = 1 + max(int(support[-1]) for support in supports)
    if size <= _DENSE:
        return _dense_counts(supports, size)
    layout = _MANY if number > _FROM else _FEW
    columns = -(-number // _SHARING)
    layout = replace(layout, width=-(-columns // -(-columns // layout.width)))  # even panels
    blocks = list(_blocks(supports, layout))
    workers = min(threads or os.cpu_count() or 1, len(blocks))
    shares = [blocks[worker::workers] for worker in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        parts = pool.map(lambda share: _count(share, number, layout), shares)
        total = sum(parts, start=np.zeros(1, dtype=np.int64))
    # Axes: columns, set in the number, rows, column. Each pair was counted at least once.
    counts = total.transpose(2, 0, 3, 1).reshape(number, -1)[:, :number]
    return np.maximum(counts, counts.T)


def _relabelled(supports: Sequence[Indices]) -> Sequence[Indices]:
    """Return sets with the same pairs in common, whose indices are no more than their members."""
    sizes = [support.size for support in supports]
    if max(int(support[-1]) for support in supports) < sum(sizes):
        return supports
    labels = np.unique(np.concatenate(supports), return_inverse=True)[1]
    return np.split(labels, np.cumsum(sizes)[:-1])


def _dense_counts(supports: Sequence[Indices], size: int) -> Counts:
    marks = np.zeros(
        (len(supports), size), dtype=np.float32
    )  # which holds all these counts exactly
    rows = np.repeat(np.arange(len(supports)), [support.size for support in supports])
    marks[rows, np.concatenate(supports)] = 1
    return (marks @ marks.T).astype(np.int64)


@dataclass(frozen=True)
class _Block:
    """The members of all sets in one block of columns, as slices."""

    supports: Sequence[Indices]
    first: int
    length: int
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


def _blocks(supports: Sequence[Indices], layout: _Layout) -> Iterator[_Block]:
    """Cut the columns so that no set has more members in a block than a count can hold."""
    last = max(int(support[-1]) for support in supports)
    edges = np.arange(0, last + 1 + layout.cell, layout.cell)
    places = np.stack([np.searchsorted(support, edges) for support in supports], axis=1)
    start = 0
    for stop in range(1, edges.size):
        end = stop + 1
        fits = (
            end < edges.size
            and edges[end] - edges[start] <= layout.block
            and (places[end] - places[start]).max() <= layout.limit
        )
        if not fits:
            length = int(edges[stop] - edges[start])
            yield _Block(supports, int(edges[start]), length, places[start], places[stop])
            start = stop


def _count(blocks: Sequence[_Block], number: int, layout: _Layout) -> Counts:
    """Return the sums over blocks, by panel of the dense factor, place in it, row and column."""
    panels = -(-number // (_SHARING * layout.width))
    counts = np.zeros((panels, _SHARING, number, layout.width), dtype=np.int64)
    for block in blocks:
        rows = _sparse_rows(block, layout)
        dense = _dense_panels(rows, panels, layout)
        for panel in range(panels):
            # A pair is counted where the later of the two is a column: earlier rows are enough.
            needed = min(number, (panel + 1) * layout.width * _SHARING)
            shared = (_first_rows(rows, needed) @ dense[panel]).astype(np.int64)
            for place in range(_SHARING):
                counts[panel, place, :needed] += shared & layout.limit
                shared >>= layout.bits
    return counts


def _sparse_rows(block: _Block, layout: _Layout) -> Any:
    """Return the block of A, one row per set."""
    from scipy.sparse import csr_array  # only servers compare sets: a device need not have scipy

    slices = zip(block.supports, block.starts.tolist(), block.stops.tolist(), strict=True)
    members = np.concatenate([support[start:stop] for support, start, stop in slices])
    ends = np.cumsum(block.stops - block.starts, dtype=np.int32)
    columns = (members - block.first).astype(np.int32)
    ones = np.ones(columns.size, dtype=layout.dtype)
    pointers = np.concatenate([np.zeros(1, dtype=np.int32), ends])
    return csr_array((ones, columns, pointers), shape=(len(block.supports), block.length))


def _first_rows(rows: Any, number: int) -> Any:
    from scipy.sparse import csr_array

    end = rows.indptr[number]
    parts = (rows.data[:end], rows.indices[:end], rows.indptr[: number + 1])
    return csr_array(parts, shape=(number, rows.shape[1]))


def _dense_panels(rows: Any, panels: int, layout: _Layout) -> NDArray[np.floating[Any]]:
    """Return the transpose with three sets in one number, cut into panels of columns."""
    from scipy.sparse import coo_array

    number, length = rows.shape
    sizes = np.diff(rows.indptr)
    panel, column = np.divmod(np.arange(number, dtype=np.int32) // _SHARING, layout.width)
    weight = (2.0**layout.bits) ** (np.arange(number) % _SHARING)
    places = (np.repeat(panel * length, sizes) + rows.indices, np.repeat(column, sizes))
    values = np.repeat(weight.astype(layout.dtype), sizes)
    dense = coo_array((values, places), shape=(panels * length, layout.width)).toarray()
    return np.asarray(dense.reshape(panels, length, layout.width))
