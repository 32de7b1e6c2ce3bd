"""k-means of many small sets of points at once."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

_STEPS = 15
_SETTLED = 1e-12  # centres that move no further


def many_kmeans(
    sets: Floats, parts: Sequence[int], rng: np.random.Generator, starts: int = 8
) -> Labels:
    """Return the clusters of each set of points, numbered in the order in which they first occur.

    From several starts (as k-means++ chooses them), the one of least squared distances.

    - ``parts``: number of clusters in each set; no more than there are points.

    >>> points = np.array([[[0.0], [9.0], [0.1], [9.1]], [[5.0], [5.1], [0.0], [0.2]]])
    >>> many_kmeans(points, [2, 4], np.random.default_rng(0)).tolist()
    [[0, 1, 0, 1], [0, 1, 2, 3]]
    """
    centres = _first_centres(sets, *_draws(rng, parts, sets.shape[1], starts))
    most = centres.shape[2]
    beyond = np.where(np.arange(most) < np.array(parts)[:, None], 0.0, -np.inf)[:, None, :, None]
    points = np.concatenate([sets, np.ones((*sets.shape[:2], 1))], axis=2)  # counts them, too
    for _ in range(_STEPS):
        member = _nearest(_closeness(points, centres, beyond))
        flat = member.reshape(len(sets), starts * most, -1).astype(np.float64)
        sums = (flat @ points).reshape(*centres.shape[:3], -1)
        sizes = sums[..., -1:]
        moved = np.where(sizes > 0, sums[..., :-1] / np.maximum(sizes, 1), centres)
        settled = np.abs(moved - centres).max(initial=0.0) <= _SETTLED
        centres = moved
        if settled:
            break
    closeness = _closeness(points, centres, beyond)
    best = closeness.max(axis=2).sum(axis=2).argmax(axis=1)
    return _in_order(closeness[np.arange(len(sets)), best].argmax(axis=1), most)


def _closeness(points: Floats, centres: Floats, beyond: Floats) -> Floats:
    """Return ``<x, c> - |c|^2 / 2``, larger the nearer: sets x starts x centres x points.

    The last entry of each point is 1. Points are few numbers each, so that all starts of a set are
    one matrix product. To centres ``beyond`` a set's number nothing is near.
    """
    halves = np.sum(centres**2, axis=3, keepdims=True) / -2 + beyond
    factors = np.concatenate([centres, halves], axis=3).reshape(len(points), -1, points.shape[2])
    products = factors @ points.transpose(0, 2, 1)
    return np.asarray(products.reshape(*centres.shape[:3], -1))


def _nearest(closeness: Floats) -> NDArray[np.bool_]:
    """Return which centre each point belongs to; of equally near ones, the first."""
    member = np.asarray(closeness == closeness.max(axis=2, keepdims=True))
    if np.count_nonzero(member) > member.size // member.shape[2]:  # rare, and slower to rule out
        numbers = np.arange(member.shape[2])[:, None]
        member = closeness.argmax(axis=2)[:, :, None, :] == numbers
    return member


def _draws(
    rng: np.random.Generator, parts: Sequence[int], points: int, starts: int
) -> tuple[Labels, Floats]:
    """Return a point of each set for each start, and random numbers for its further centres."""
    first, later, done = [], np.zeros((max(parts) - 1, len(parts), starts)), 0
    for number, alike in groupby(parts):
        sets = len(list(alike))
        first.append(rng.integers(points, size=(sets, starts)))
        later[: number - 1, done : done + sets] = rng.random((number - 1, sets, starts))
        done += sets
    return np.concatenate(first), later


def _first_centres(sets: Floats, first: Labels, later: Floats) -> Floats:
    """Return points of each set, for each start: one, then ever another far from those before."""
    rows, count = np.arange(len(sets))[:, None], sets.shape[1]
    chosen = [sets[rows, first]]
    gaps = np.full((*first.shape, count), np.inf)
    norms, across = np.sum(sets**2, axis=2)[:, None, :], 2 * sets.transpose(0, 2, 1)
    for drawn in later:
        last = chosen[-1]
        squares = norms + np.sum(last**2, axis=2)[..., None] - last @ across
        np.minimum(gaps, np.maximum(squares, 0.0), out=gaps)
        ends = np.cumsum(gaps + 1e-300, axis=2)
        before = ends < drawn[..., None] * ends[..., -1:]
        chosen.append(sets[rows, np.minimum(np.count_nonzero(before, axis=2), count - 1)])
    return np.stack(chosen, axis=2)


def _in_order(labels: Labels, parts: int) -> Labels:
    """Return the same clusters, numbered in the order in which they first occur."""
    member = labels[:, :, None] == np.arange(parts)
    first = np.where(member.any(axis=1), member.argmax(axis=1), labels.shape[1])
    ranks = first.argsort(axis=1).argsort(axis=1)
    return np.take_along_axis(ranks, labels, axis=1)
