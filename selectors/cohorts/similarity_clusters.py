"""Clusters of clients by any similarity, with affinity propagation.

Frey, Dueck: *Clustering by Passing Messages Between Data Points*. It finds the number of clusters
by itself. Where it does not converge there is one cluster, and the result says so.

Every clustering starts cold. Messages of the clustering before were tried as a start: they spared a
fifth of the steps where groups are clear, cost up to seven times as many where they are not, and
ended in clusters that are slightly worse by the similarity to their exemplars.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float32]
Positions = NDArray[np.intp]

_SLOWER = (0.75, 0.9)  # dampings tried when the messages do not converge
_PATIENCE = 10  # steps in a row with the same exemplars that count as converged
_JITTER = 1e-6  # of the preferences, relative to the similarities: no two choices are equally good
_ROWS = 128  # worked on at a time: they stay in the cache


@dataclass(frozen=True)
class SimilarityClusters:
    """The clusters, and whether they are to be trusted.

    Attributes
    ----------
    labels : array of int
        Cluster of each client, from 0 on.
    exemplars : array of int
        Position of the client that stands for each cluster.
    converged : bool
        If not, all are in one cluster: worth a warning.
    """

    labels: Positions
    exemplars: Positions
    converged: bool


def similarity_clusters(
    similarity: ArrayLike,
    preference: float | None = None,
    damping: float = 0.5,
    iterations: int = 200,
    seed: int = 0,
) -> SimilarityClusters:
    """Return clusters by affinity propagation.

    Parameters
    ----------
    similarity : array of float, one row and one column per client
        Larger is more alike; the diagonal is not looked at.
    preference : float, optional
        How readily a client stands for others: the larger, the more clusters. The median of the
        similarities if not given.
    damping : float
        From 0.5 to below 1; raised where the messages swing and do not settle.
    iterations : int
        At most.
    seed : int
        Of what decides between choices that are equally good.

    Examples
    --------
    >>> alike = [[1, 0.9, 0.1, 0.2], [0.9, 1, 0.1, 0.1], [0.1, 0.1, 1, 0.8], [0.2, 0.1, 0.8, 1]]
    >>> similarity_clusters(alike).labels.tolist()
    [0, 0, 1, 1]
    """
    matrix = np.asarray(similarity, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.all(np.isfinite(matrix)):
        raise ValueError(f"similarity: expected a square of finite numbers, got {matrix.shape}")
    if not 0.5 <= damping < 1:
        raise ValueError(f"damping: expected 0.5 to below 1, got {damping!r}")
    others = matrix[~np.eye(len(matrix), dtype=np.bool_)]
    spread = np.ptp(others) if others.size else 0.0
    if spread <= 1e-9:  # one client, or all the same to each other
        return _one_cluster(len(matrix), converged=True)
    wanted = float(np.median(others, overwrite_input=True)) if preference is None else preference
    # Neither scale nor origin matters to the messages, but both matter to single precision.
    scaled = ((matrix - wanted) / spread).astype(np.float32)
    jitter = np.random.default_rng(seed).standard_normal(len(matrix), dtype=np.float32)
    np.fill_diagonal(scaled, _JITTER * jitter)
    for slower in (damping, *(d for d in _SLOWER if d > damping)):
        exemplars = _propagate(scaled, slower, iterations)
        if exemplars is not None:
            return _around(exemplars, scaled)
    return _one_cluster(len(matrix), converged=False)


def _propagate(similarity: Matrix, damping: float, iterations: int) -> Positions | None:
    """Return the clients that stand for others once they no longer change; nothing if they do."""
    messages = _Messages(similarity, damping)
    before, unchanged = np.zeros(len(similarity), dtype=np.bool_), 0
    for _ in range(iterations):
        messages.ask()
        messages.answer()
        chosen = messages.exemplars()
        unchanged = unchanged + 1 if chosen.any() and np.array_equal(chosen, before) else 1
        before = chosen
        if unchanged >= _PATIENCE and chosen.any():
            return np.flatnonzero(chosen)
    return None


class _Messages:
    """Responsibilities r(i, k), how well k would stand for i, and availabilities a(i, k) of k.

    Each step moves both towards what the other says (eq. 1 to 3), some rows at a time and in place:
    passes over the memory are all that they cost.
    """

    def __init__(self, similarity: Matrix, damping: float) -> None:
        self._similarity = similarity
        # r <- damping r + (1 - damping) new, in an order of operations that spares one of them
        self._past, self._new = np.float32(damping / (1 - damping)), np.float32(1 - damping)
        self._asked, self._told = np.zeros_like(similarity), np.zeros_like(similarity)
        self._support = np.empty_like(similarity)  # r where it is positive or r(k, k), else 0
        self._buffer = np.empty((_ROWS, len(similarity)), dtype=np.float32)
        clients = np.arange(len(similarity))
        self._blocks = [clients[start : start + _ROWS] for start in clients[::_ROWS]]

    def ask(self) -> None:
        """Update the responsibilities: s(i, k) less the best of a(i, j) + s(i, j), j not k."""
        for own in self._blocks:
            rows, total = np.arange(own.size), self._buffer[: own.size]
            block = slice(own[0], own[-1] + 1)
            similar, asked = self._similarity[block], self._asked[block]
            np.add(self._told[block], similar, out=total)
            best = total.argmax(axis=1)
            top = total[rows, best]
            total[rows, best] = -np.inf
            lead = top - total.max(axis=1)
            self._damp(asked)
            asked += similar
            asked -= top[:, None]
            asked[rows, best] += lead
            asked *= self._new
            positive = np.maximum(asked, 0, out=self._support[block])
            positive[rows, own] = asked[rows, own]

    def answer(self) -> None:
        """Update the availabilities: what others say for k, at most 0 except for k itself."""
        total = self._support.sum(axis=0)
        for own in self._blocks:
            rows, told = np.arange(own.size), self._told[own[0] : own[-1] + 1]
            others = self._buffer[: own.size]
            np.subtract(total, self._support[own[0] : own[-1] + 1], out=others)
            for_itself = others[rows, own]
            np.minimum(others, 0, out=others)
            others[rows, own] = for_itself
            self._damp(told)
            told += others
            told *= self._new

    def _damp(self, message: Matrix) -> None:
        if self._past != 1:
            message *= self._past

    def exemplars(self) -> NDArray[np.bool_]:
        """Return who would stand for itself."""
        return np.asarray(np.diag(self._asked) + np.diag(self._told) > 0)


def _around(exemplars: Positions, similarity: Matrix) -> SimilarityClusters:
    """Return the clusters around exemplars, each moved to the middle of its cluster first."""
    labels = _nearest(exemplars, similarity)
    groups = [np.flatnonzero(labels == label) for label in range(exemplars.size)]
    middles = [own[similarity[np.ix_(own, own)].sum(axis=0).argmax()] for own in groups]
    exemplars = np.sort(np.array(middles, dtype=np.intp))
    return SimilarityClusters(_nearest(exemplars, similarity), exemplars, converged=True)


def _nearest(exemplars: Positions, similarity: Matrix) -> Positions:
    labels: Positions = similarity[:, exemplars].argmax(axis=1)
    labels[exemplars] = np.arange(exemplars.size)
    return labels


def _one_cluster(clients: int, converged: bool) -> SimilarityClusters:
    labels = np.zeros(clients, dtype=np.intp)
    return SimilarityClusters(labels, labels[: min(clients, 1)].copy(), converged)
