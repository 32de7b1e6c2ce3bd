"""k-means of many small sets of points at once."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

_STEPS = 15


def many_kmeans(sets: Floats, parts: int, rng: np.random.Generator, starts: int = 8) -> Labels:
    """Return the clusters of each set of points, numbered in the order in which they first occur.

    From several starts (as k-means++ chooses them), the one of least squared distances.

    Parameters
    ----------
    sets : array of float, sets x points x dimensions
    parts : int
        Number of clusters; no more than there are points.
    rng : Generator
    starts : int

    Examples
    --------
    >>> points = np.array([[[0.0], [9.0], [0.1], [9.1]], [[5.0], [5.1], [0.0], [0.2]]])
    >>> many_kmeans(points, 2, np.random.default_rng(0)).tolist()
    [[0, 1, 0, 1], [0, 0, 1, 1]]
    """
    points = np.repeat(sets, starts, axis=0)
    centres = _first_centres(points, parts, rng)
    for _ in range(_STEPS):
        member = _squares(points, centres).argmin(axis=2)[:, :, None] == np.arange(parts)
        sizes = member.sum(axis=1)[:, :, None]
        sums = np.einsum("snk,snd->skd", member.astype(np.float64), points)
        moved = np.where(sizes > 0, sums / np.maximum(sizes, 1), centres)
        if np.allclose(moved, centres, rtol=0.0, atol=1e-12):
            break
        centres = moved
    squares = _squares(points, centres)
    costs = squares.min(axis=2).sum(axis=1).reshape(len(sets), starts)
    best = np.arange(len(sets)) * starts + costs.argmin(axis=1)
    return _in_order(squares[best].argmin(axis=2), parts)


def _squares(points: Floats, centres: Floats) -> Floats:
    """Return squared distances, sets x points x centres."""
    own = np.sum(points**2, axis=2)[:, :, None] + np.sum(centres**2, axis=2)[:, None, :]
    squares: Floats = np.maximum(own - 2 * points @ centres.transpose(0, 2, 1), 0.0)
    return squares


def _first_centres(points: Floats, parts: int, rng: np.random.Generator) -> Floats:
    """Return points of each set: one, then ever another far from those before."""
    rows, count = np.arange(len(points)), points.shape[1]
    chosen = points[rows, rng.integers(count, size=len(points))][:, None, :]
    for _ in range(1, parts):
        weights = _squares(points, chosen).min(axis=2) + 1e-300
        ends = np.cumsum(weights, axis=1)
        drawn = rng.random(len(points))[:, None] * ends[:, -1:]
        another = points[rows, np.minimum((ends < drawn).sum(axis=1), count - 1)]
        chosen = np.concatenate([chosen, another[:, None, :]], axis=1)
    return chosen


def _in_order(labels: Labels, parts: int) -> Labels:
    """Return the same clusters, numbered in the order in which they first occur."""
    member = labels[:, :, None] == np.arange(parts)
    first = np.where(member.any(axis=1), member.argmax(axis=1), labels.shape[1])
    ranks = first.argsort(axis=1).argsort(axis=1)
    return np.take_along_axis(ranks, labels, axis=1)
