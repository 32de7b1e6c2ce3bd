"""Clusters of updates, found round by round (Auxo, section 4.2, lines 14 to 19 of algorithm 1).

The server sees only the participants of a round, and cannot compare updates of different rounds,
which start from different models. It therefore keeps the cluster of each client between rounds.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans

from ..checks import at_least
from ..stateful import Stateful
from .heterogeneity import heterogeneity
from .projection import unit_rows
from .split import Gain, SplitRule, gain_of

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

_SEED = 0
_UNLABELLED = -1


def assign(
    updates: ArrayLike, labels: ArrayLike, parts: int, centroids: ArrayLike | None = None
) -> Labels:
    """Return the cluster of each participant after one round.

    If none has a label yet, k-means gives the first ones. From then on the centroids are the means
    of this round's participants that have a label, and everyone goes to the closest centroid. Where
    a label is missing among the participants, all keep what they have. Only directions count; an
    update of zero has none and keeps its label.

    - ``updates`` (one row per participant): in any scale.
    - ``labels``: from earlier rounds; -1 for none.
    - ``parts``: number of clusters (K).
    - ``centroids``: one row per cluster: where to look for clusters of which no member is here.

    >>> updates = [[1.0, 0.0], [0.0, 3.0], [9.0, 1.0], [0.1, 0.2]]
    >>> assign(updates, [0, 1, -1, -1], parts=2).tolist()
    [0, 1, 0, 1]
    >>> assign(updates, [0, -1, -1, -1], parts=2).tolist()  # nobody is known to be in cluster 1
    [0, -1, -1, -1]
    """
    points = unit_rows(updates)
    before = checked_labels(labels, len(points), parts)
    if not np.any(before >= 0) and centroids is None:
        return first_labels(points, parts)
    centres = centroids_of(points, before, parts, centroids)
    if np.any(np.isnan(centres)):
        return before
    nearest = np.argmin(distances_to(points, centres), axis=1)
    return np.where(_directed(points), nearest, before)


def first_labels(updates: ArrayLike, parts: int) -> Labels:
    """Return clusters by k-means of directions; fewer where fewer directions differ."""
    points = unit_rows(updates)
    labels = np.full(len(points), _UNLABELLED, dtype=np.intp)
    directed = _directed(points)
    # Rounding makes several directions of one.
    distinct = len(np.unique(points[directed].round(9), axis=0))
    if distinct:
        clusters = KMeans(min(parts, distinct), n_init=3, random_state=_SEED)
        found = clusters.fit(points[directed]).labels_
        labels[directed] = numbered_as_they_come(found)
    return labels


def best_parts(updates: ArrayLike, most: int, exponent: float = 1.0) -> tuple[Labels, int]:
    """Return the clusters of that number, 2 to ``most``, for which splitting gains the most.

    Lemma 4.1 asks that heterogeneity falls in proportion to the number of parts: the best number
    is that with the smallest ``J(parts) * parts ** exponent``. J is taken per degree of freedom, as
    clusters of one would always have none.
    """
    points = unit_rows(updates)
    tried = [first_labels(points, parts) for parts in range(2, most + 1)]
    found = [(labels, int(labels.max(initial=-1)) + 1) for labels in tried]
    alone = np.where(_directed(points), 0, _UNLABELLED).astype(np.intp), 1
    costs = [
        heterogeneity(points, labels) * parts**exponent / max(len(points) - parts, 1)
        for labels, parts in found
    ]
    return found[int(np.argmin(costs))] if found and found[0][1] > 1 else alone


def centroids_of(
    points: Floats, labels: Labels, parts: int, fallback: ArrayLike | None = None
) -> Floats:
    """Return the mean of each cluster's members here; else the fallback, else not a number."""
    centres = np.full((parts, points.shape[1]), np.nan)
    if fallback is not None:
        centres[:] = np.asarray(fallback, dtype=np.float64)
    here = _directed(points)
    for label in range(parts):
        members = here & (labels == label)
        if members.any():
            centres[label] = points[members].mean(axis=0)
    return centres


def distances_to(points: Floats, centres: Floats) -> Floats:
    """Return the distance of each point to each centre, one row per point."""
    squares = np.sum(points**2, axis=1)[:, None] + np.sum(centres**2, axis=1)[None, :]
    distances: Floats = np.sqrt(np.maximum(squares - 2 * points @ centres.T, 0))
    return distances


def checked_labels(labels: ArrayLike, count: int, parts: int) -> Labels:
    """Return labels as positions; there must be one per row, from -1 to below ``parts``."""
    at_least(1, parts=parts)
    given = np.asarray(labels)
    if given.shape != (count,):
        raise ValueError(f"labels: expected {count}, one per row, got shape {given.shape}")
    if np.any(given < _UNLABELLED) or np.any(given >= parts) or np.any(given != np.floor(given)):
        raise ValueError(f"labels: expected whole numbers from -1 to {parts - 1}, got {given}")
    return given.astype(np.intp)


def _directed(points: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.any(points != 0, axis=1))


def numbered_as_they_come(labels: NDArray[np.int32]) -> Labels:
    """Return the same clusters, numbered in the order in which they first occur."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    ranks = np.empty(first.size, dtype=np.intp)
    ranks[np.argsort(first)] = np.arange(first.size)
    return ranks[inverse]


class OnlineClusters(Stateful):
    """The clusters within one cohort, over its rounds.

    The first search chooses their number. Later updates reveal more about the data. While a split
    along the present clusters would not be worth it, the search is therefore repeated now and then,
    and new clusters replace the old ones if a split along them would be. The new clusters get new
    numbers, which makes the clients' records of the old ones void.

    If no member of a cluster takes part, its centroid of the last round is kept. With very many
    clients that is the rule: 200 of 100,000 hardly ever meet again.

    - ``most``: number of clusters at most (K); 1 for none at all.
    - ``rule``: says what is worth a split.
    - ``retry``: after this many rounds of clusters that are not worth a split, the search starts
      again.
    """

    remembers = ("parts", "first", "_idle", "centroids")

    def __init__(self, most: int, rule: SplitRule, retry: int = 20) -> None:
        self.most, self.rule, self.retry = most, rule, retry
        self.parts = 0  # none were found yet
        self.first = 0  # number of the first cluster
        self.centroids: Floats = np.empty((0, 0))
        self._idle = 0

    def labels_of(self, indices: ArrayLike) -> Labels:
        """Return the labels, 0 to ``parts - 1``, that numbers of clusters stand for; else -1."""
        labels = np.asarray(indices, dtype=np.intp) - self.first
        return np.where((labels >= 0) & (labels < self.parts), labels, _UNLABELLED)

    def indices_of(self, labels: Labels) -> Labels:
        """Return the numbers of the clusters of these labels; -1 for none."""
        return np.where(labels >= 0, labels + self.first, _UNLABELLED)

    def step(self, points: Floats, indices: ArrayLike) -> tuple[Labels, Gain]:
        """Return the labels of the participants after one round, and what a split would gain.

        - ``indices``: number of the cluster that each was in before; -1 for none.
        """
        labels = np.full(len(points), _UNLABELLED, dtype=np.intp)
        if self.parts:
            labels = assign(points, self.labels_of(indices), self.parts, self.centroids)
        gain = gain_of(points, labels, self.parts)
        self._idle = 0 if self.rule.gains(gain) else self._idle + 1
        if self.parts == 0 or self._idle >= self.retry:
            labels, gain = self._afresh(points, labels, gain)
        if self.parts:
            known = self.centroids if self.centroids.size else None
            self.centroids = centroids_of(points, labels, self.parts, known)
        return labels, gain

    def _afresh(self, points: Floats, labels: Labels, gain: Gain) -> tuple[Labels, Gain]:
        """Return new clusters if there were none, or if a split along them would be worth it."""
        self._idle = 0
        if self.most < 2 or len(points) < 2 * self.most:
            return labels, gain
        found, parts = best_parts(points, self.most, self.rule.exponent)
        promise = gain_of(points, found, parts)
        if parts < 2 or (self.parts and not self.rule.gains(promise)):
            return labels, gain
        self.first, self.parts = self.first + self.parts, parts
        self.centroids = np.empty((0, 0))
        return found, promise
