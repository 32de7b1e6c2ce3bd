"""The cluster-based benchmark of CosAge, section IV: one client from each cluster of data.

Clients are clustered by k-means on their label histograms, as many clusters as clients are chosen,
and the members of a cluster take turns. The server of a real federation does not know histograms:
this rule is an *oracle*, a reference for other rules in simulation.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans

from .base import Candidates, Positions
from .plain import RoundRobin

_SEED = 0
_LARGE = 1_000_000  # clients times clusters from which k-means works on samples of the clients


def shares_of_labels(histograms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return label counts as shares, so that how much data a client has does not matter."""
    counts = np.asarray(histograms, dtype=np.float64)
    if counts.ndim != 2 or not np.all(np.isfinite(counts) & (counts >= 0)):
        raise ValueError("histogram: expected label counts from 0 on, one row per client")
    shares: NDArray[np.float64] = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def clusters_of(shares: NDArray[np.float64], clusters: int) -> NDArray[np.intp]:
    """Return the cluster of each row by k-means, seeded; fewer where fewer rows differ."""
    clusters = min(clusters, len(np.unique(shares, axis=0)))
    if clusters < 2:
        return np.zeros(len(shares), dtype=np.intp)
    large = clusters * len(shares) > _LARGE
    method = MiniBatchKMeans if large else KMeans
    fitted = method(clusters, n_init=1 if large else 10, random_state=_SEED).fit(shares)
    return np.asarray(fitted.labels_, dtype=np.intp)


class ClusterOracle(RoundRobin):
    """One client from each cluster of label histograms, in turn.

    In its cluster, the client whose last turn was longest ago comes first. If there are fewer
    different histograms than clients to choose, the clients that have waited longest are added.

    >>> crowd = Candidates(list("abc"), {"histogram": np.array([[9, 1], [8, 2], [0, 5]])})
    >>> turns, rng = ClusterOracle(), np.random.default_rng(0)
    >>> [turns.select(crowd, 2, rng).tolist() for _ in range(3)]
    [[0, 2], [1, 2], [0, 2]]
    """

    needs = frozenset({"histogram"})
    oracle = True

    def __init__(self) -> None:
        super().__init__()
        self._clustered: tuple[NDArray[np.float64], int] | None = None
        self._labels: NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions whose turn it is in their clusters, in ascending order."""
        count = min(count, len(candidates))
        labels = self._clusters(shares_of_labels(candidates.observed("histogram")), count)
        last = np.array([self._last.get(key, -1) for key in candidates.keys], dtype=np.int64)
        waiting = np.argsort(last, kind="stable")
        _, first = np.unique(labels[waiting], return_index=True)
        others = np.delete(waiting, first)
        chosen = np.sort(np.concatenate([waiting[first], others])[:count])
        self._last = {key: self._last[key] for key in candidates.keys if key in self._last}
        self._last |= {candidates.keys[i]: self._turn for i in chosen}
        self._turn += 1
        return chosen

    def _clusters(self, shares: NDArray[np.float64], clusters: int) -> NDArray[np.intp]:
        """Return the cluster of each client, computed again only when the clients change."""
        same = self._clustered is not None and self._clustered[1] == clusters
        if self._clustered is None or not same or not np.array_equal(self._clustered[0], shares):
            self._labels = clusters_of(shares, clusters)
            self._clustered = shares, clusters
        return self._labels
