"""k-means of many small sets of points at once."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

_STEPS = 15
_SETTLED = 1e-12  # centres that move no further


def many_kmeans(sets: Floats, parts: int, rng: np.random.Generator, starts: int = 8) -> Labels:
    """Return the clusters of each set of points, numbered in the order in which they first occur.

    From several starts (as k-means++ chooses them), the one of least squared distances.

    - ``parts``: number of clusters; no more than there are points.

    >>> points = np.array([[[0.0], [9.0], [0.1], [9.1]], [[5.0], [5.1], [0.0], [0.2]]])
    >>> many_kmeans(points, 2, np.random.default_rng(0)).tolist()
    [[0, 1, 0, 1], [0, 0, 1, 1]]
    """
    centres = _first_centres(sets, parts, rng, starts)
    points = np.concatenate([sets, np.ones((*sets.shape[:2], 1))], axis=2)  # counts them, too
    for _ in range(_STEPS):
        member = _nearest(_closeness(points, centres))
        flat = member.reshape(len(sets), starts * parts, -1).astype(np.float64)
        sums = (flat @ points).reshape(*centres.shape[:3], -1)
        sizes = sums[..., -1:]
        moved = np.where(sizes > 0, sums[..., :-1] / np.maximum(sizes, 1), centres)
        settled = np.abs(moved - centres).max(initial=0.0) <= _SETTLED
        centres = moved
        if settled:
            break
    closeness = _closeness(points, centres)
    best = closeness.max(axis=2).sum(axis=2).argmax(axis=1)
    return _in_order(closeness[np.arange(len(sets)), best].argmax(axis=1), parts)


def _closeness(points: Floats, centres: Floats) -> Floats:
    """Return ``<x, c> - |c|^2 / 2``, larger the nearer: sets x starts x centres x points.

    The last entry of each point is 1. Points are few numbers each, so that all starts of a set are
    one matrix product.
    """
    halves = np.sum(centres**2, axis=3, keepdims=True) / -2
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


def _first_centres(sets: Floats, parts: int, rng: np.random.Generator, starts: int) -> Floats:
    """Return points of each set, for each start: one, then ever another far from those before."""
    rows, count = np.arange(len(sets))[:, None], sets.shape[1]
    chosen = [sets[rows, rng.integers(count, size=(len(sets), starts))]]
    gaps = np.full((len(sets), starts, count), np.inf)
    norms = np.sum(sets**2, axis=2)[:, None, :]
    for _ in range(1, parts):
        last = chosen[-1]
        squares = norms + np.sum(last**2, axis=2)[..., None] - 2 * last @ sets.transpose(0, 2, 1)
        np.minimum(gaps, np.maximum(squares, 0.0), out=gaps)
        ends = np.cumsum(gaps + 1e-300, axis=2)
        drawn = rng.random((len(sets), starts))[..., None] * ends[..., -1:]
        chosen.append(sets[rows, np.minimum((ends < drawn).sum(axis=2), count - 1)])
    return np.stack(chosen, axis=2)


def _in_order(labels: Labels, parts: int) -> Labels:
    """Return the same clusters, numbered in the order in which they first occur."""
    member = labels[:, :, None] == np.arange(parts)
    first = np.where(member.any(axis=1), member.argmax(axis=1), labels.shape[1])
    ranks = first.argsort(axis=1).argsort(axis=1)
    return np.take_along_axis(ranks, labels, axis=1)
