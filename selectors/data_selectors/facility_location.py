"""Facility location: the medoids, the samples that best represent all others.

Greedy maximisation of ``sum_i max_{j in S} (c - d_ij)`` with squared Euclidean distances: every
sample should be close to a chosen one. (The constant c makes no difference.) The gain of a sample
only falls as others are chosen (submodularity), and an old gain is therefore an upper bound. The
lazy greedy algorithm (Minoux, 1978) recomputes only the gains that may be the largest, and chooses
the same samples as plain greedy.
"""

from collections.abc import Callable, Iterator
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least

Positions = NDArray[np.intp]
Distances = NDArray[Any]
Measure = Callable[[Distances], Distances]

KEPT_BYTES = 2**27  # distances up to this size are kept, others recomputed when needed
BLOCK_BYTES = 2**22
LOOKAHEAD = 16  # gains computed together: more are wasted work, fewer are wasted calls


def facility_location(features: ArrayLike, budget: int) -> Positions:
    """Return the samples that best represent all others, in the order chosen.

    - ``features`` (shape (n, d)): one row per sample. Rows that are not finite are neither chosen
      nor represented.
    - ``budget``: how many; if there are fewer samples, all of them. Ties go to the lower index.

    The centre of all samples, then the centre of the other group.

    >>> facility_location([[0.0], [1.0], [2.0], [7.0], [10.0], [11.0]], 2).tolist()
    [3, 1]
    """
    return greedy_medoids(features, budget, _squared)


def cluster_sizes(features: ArrayLike, chosen: Positions) -> NDArray[np.int64]:
    """Return for how many samples each chosen one is the nearest, its weight."""
    rows, usable = finite_rows(features)
    if len(chosen) == 0:
        return np.zeros(0, dtype=np.int64)
    pairs = PairDistances(rows, _squared)
    owner, shortest = np.zeros(len(rows), dtype=np.intp), np.full(len(rows), np.inf)
    for number, place in enumerate(np.searchsorted(usable, chosen)):
        distances = pairs.of(place)
        owner[distances < shortest] = number
        np.minimum(shortest, distances, out=shortest)
    return np.bincount(owner, minlength=len(chosen))


def greedy_medoids(features: ArrayLike, budget: int, measure: Measure) -> Positions:
    """Return samples that make the sum of all distances to the nearest of them small.

    - ``features`` (shape (n, d)): one row per sample.
    - ``budget``: how many to choose.
    - ``measure``: makes distances of squared Euclidean ones, in place if it likes.
    """
    rows, usable = finite_rows(features)
    at_least(0, budget=index(budget))
    budget = min(budget, len(rows))
    if budget == 0:
        return usable[:0]
    pairs = PairDistances(rows, measure)
    pairs.keep()
    totals = np.concatenate([block.sum(axis=1) for block in pairs.blocks()])
    chosen = [int(np.argmin(totals))]
    shortest = pairs.of(chosen[0])
    bounds = np.concatenate([_gains(block, shortest) for block in pairs.blocks()])
    while len(chosen) < budget:
        bounds[chosen[-1]] = -1.0  # below all gains: not again
        chosen.append(_largest_gain(pairs, shortest, bounds))
        np.minimum(shortest, pairs.of(chosen[-1]), out=shortest)
    return usable[chosen]


def finite_rows(features: ArrayLike) -> tuple[Distances, Positions]:
    """Return the rows without those that are not finite, and where they are."""
    rows = np.asarray(features)
    if rows.ndim != 2:
        raise ValueError(f"features: expected one row per sample, got shape {rows.shape}")
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    usable = np.flatnonzero(np.isfinite(rows).all(axis=1))
    return rows if len(usable) == len(rows) else rows[usable], usable


def _squared(squared: Distances) -> Distances:
    return squared


def _largest_gain(pairs: "PairDistances", shortest: Distances, bounds: Distances) -> int:
    """Return who gains most, and lower the bounds of all that were looked at to their gains."""
    order = np.argsort(-bounds)
    gains = np.full(bounds.size, -1.0, dtype=bounds.dtype)
    for start in range(0, order.size, LOOKAHEAD):
        places = order[start : start + LOOKAHEAD]
        places = places[bounds[places] >= max(0.0, gains.max())]
        if not places.size:
            break
        gains[places] = bounds[places] = _gains(pairs.block(places), shortest)
    return int(np.argmax(gains))


def _gains(block: Distances, shortest: Distances) -> Distances:
    """Return by how much each row brings the samples closer; the block is used up."""
    np.subtract(shortest, block, out=block)
    np.maximum(block, 0, out=block)
    gains: Distances = block.sum(axis=1)
    return gains


class PairDistances:
    """Distances of samples to all others, as many at a time as are asked for."""

    def __init__(self, rows: Distances, measure: Measure) -> None:
        self._rows = rows - rows.mean(axis=0)  # spares digits: see `_distances`
        self._squares = np.einsum("ij,ij->i", self._rows, self._rows)
        self._measure = measure
        self._kept: Distances | None = None

    def keep(self) -> None:
        """Compute all distances now, if they do not take too much memory."""
        if self._rows.itemsize * len(self._rows) ** 2 <= KEPT_BYTES:
            kept = self._rows @ self._rows.T  # half the work of a product of two different ones
            for places in self._parts():
                kept[places] = self._distances(kept[places], places)
            self._kept = kept

    def of(self, place: int) -> Distances:
        """Return the distances of one sample."""
        distances: Distances = self.block(np.array([place]))[0]
        return distances

    def blocks(self) -> Iterator[Distances]:
        """Yield the distances of all samples, some rows at a time."""
        for places in self._parts():
            yield self.block(places)

    def block(self, places: Positions) -> Distances:
        """Return the distances of some samples, one row each: a copy that may be changed."""
        if self._kept is not None:
            copy: Distances = self._kept[places]
            return copy
        return self._distances(self._rows[places] @ self._rows.T, places)

    def _parts(self) -> Iterator[Positions]:
        size = max(1, BLOCK_BYTES // (self._rows.itemsize * len(self._rows)))
        for start in range(0, len(self._rows), size):
            yield np.arange(start, min(start + size, len(self._rows)))

    def _distances(self, products: Distances, places: Positions) -> Distances:
        """Return distances, in place of inner products: ||a||^2 + ||b||^2 - 2 <a, b>."""
        products *= -2
        products += self._squares[places, None] + self._squares  # in one go: stays symmetric
        np.maximum(products, 0, out=products)
        products[np.arange(len(places)), places] = 0  # where rounding leaves a rest
        return self._measure(products)
