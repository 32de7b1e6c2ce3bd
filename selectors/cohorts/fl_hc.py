"""FL+HC: after some rounds with one model, one hierarchical clustering of all clients' updates.

Briggs, Fan, Andras: *Federated Learning with Hierarchical Clustering of Local Updates to Improve
Training on Non-IID Data*, algorithm 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import pairwise_distances

from ..checks import at_least, finite_rows, one_of
from ..stateful import Stateful
from .online import numbered_as_they_come
from .projection import unit_rows
from .tree import Grouping, Membership

_METRICS = ("euclidean", "manhattan", "cosine")
_LINKAGES = ("average", "complete", "single", "ward")


def hierarchical_clusters(
    updates: ArrayLike,
    threshold: float | None = None,
    clusters: int | None = None,
    metric: str = "euclidean",
    method: str = "average",
) -> NDArray[np.intp]:
    """Return the cluster of each client.

    - ``threshold``: clusters at this distance or farther apart are not merged.
    - ``clusters``: instead, the largest number of clusters.
    - ``metric``: euclidean, manhattan or cosine.
    - ``method``: which distance of two clusters counts: average, complete, single or (euclidean
      only) ward.
    """
    one_of(_METRICS, metric=metric)
    one_of(_LINKAGES, method=method)
    if method == "ward" and metric != "euclidean":
        raise ValueError(f"method: ward goes with euclidean distances only, got {metric!r}")
    if (threshold is None) == (clusters is None):
        raise ValueError("threshold, clusters: expected exactly one of them")
    rows = finite_rows(updates)
    if len(rows) < 2:
        return np.zeros(len(rows), dtype=np.intp)
    ward = method == "ward"
    fitted = AgglomerativeClustering(
        n_clusters=None if clusters is None else min(clusters, len(rows)),
        distance_threshold=threshold,
        metric="euclidean" if ward else "precomputed",
        linkage=method,
    ).fit(rows if ward else _distances(rows, metric))
    return numbered_as_they_come(fitted.labels_)


def _distances(rows: NDArray[np.float64], metric: str) -> NDArray[np.float64]:
    """Return the distance of each two; an update of zero has cosine zero with all others."""
    if metric == "cosine":
        points = unit_rows(rows)
        return np.asarray(np.clip(1 - points @ points.T, 0, 2))
    return np.asarray(pairwise_distances(rows, metric=metric))


class FlHc(Stateful, Grouping):
    """The clusters of one run.

    - ``cluster_round``: after this round all clients train once from the same model; their updates
      are clustered.
    - ``threshold``, ``clusters``, ``metric``, ``method``: see :func:`hierarchical_clusters`.

    >>> hc = FlHc(cluster_round=3, clusters=2)
    >>> [hc.due(round) for round in (2, 3)]
    [False, True]
    >>> hc.cluster(["a", "b", "c"], [[0.0], [0.1], [5.0]])
    ['0.0', '0.1']
    >>> hc.due(4), hc.members.of(["a", "b", "c"])
    (False, {'0.0': ['a', 'b'], '0.1': ['c']})
    """

    remembers = ("members", "done")

    def __init__(
        self,
        cluster_round: int = 10,
        threshold: float | None = None,
        clusters: int | None = None,
        metric: str = "euclidean",
        method: str = "average",
    ) -> None:
        hierarchical_clusters(np.zeros((0, 1)), threshold, clusters, metric, method)  # checks them
        at_least(0, cluster_round=cluster_round)
        self.cluster_round, self.threshold, self.clusters = cluster_round, threshold, clusters
        self.metric, self.method = metric, method
        self.members, self.done = Membership(), False

    def due(self, round: int) -> bool:
        """Return whether all clients should train now, to be clustered."""
        return not self.done and round >= self.cluster_round

    def cluster(self, keys: Sequence[str], updates: ArrayLike) -> list[str]:
        """Cluster everyone, once, and return the clusters."""
        if self.done:
            raise ValueError("cluster: it was done before")
        settings = self.threshold, self.clusters, self.metric, self.method
        labels = hierarchical_clusters(updates, *settings)
        if len(labels) != len(keys):
            raise ValueError(f"updates: expected {len(keys)} rows, one per key, got {len(labels)}")
        self.done = True
        return self.split_by(labels, keys)
