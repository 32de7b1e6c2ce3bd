"""CFL: split a cohort in two when it has converged and its clients have not.

Sattler, Mueller, Samek: *Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization under Privacy Constraints*, algorithm 3. All clients must train in every round.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import AgglomerativeClustering

from ..checks import at_least, finite_rows
from .projection import unit_rows
from .tree import Grouping, Membership

Positions = NDArray[np.intp]


def stationary_but_torn(
    updates: ArrayLike, mean_below: float = 0.4, max_above: float = 1.6
) -> bool:
    """Return whether the mean of the updates is short, and one of them is long.

    Then the common model has converged, while some clients still change it (epsilon 1 and 2).

    - ``updates`` (one row per client): in their true scale; sketches will do.
    - ``mean_below``, ``max_above``: lengths, epsilon 1 and 2. They depend on the model and the
      learning rate.
    """
    rows = finite_rows(updates)
    if len(rows) == 0:
        return False
    longest = np.linalg.norm(rows, axis=1).max()
    return bool(np.linalg.norm(rows.mean(axis=0)) < mean_below and longest > max_above)


def bipartition(updates: ArrayLike) -> tuple[Positions, Positions]:
    """Return two sets of positions that separate the least similar updates.

    By complete linkage of cosines. The first set holds the first client.
    """
    points = unit_rows(updates)
    if len(points) < 2:
        raise ValueError(f"updates: expected 2 or more to split, got {len(points)}")
    clusters = AgglomerativeClustering(2, metric="precomputed", linkage="complete")
    labels = clusters.fit(1 - points @ points.T).labels_
    return np.flatnonzero(labels == labels[0]), np.flatnonzero(labels != labels[0])


def cross_similarity(updates: ArrayLike, parts: tuple[Positions, Positions]) -> float:
    """Return the highest cosine of two updates in different parts.

    The separation theorem: the parts are right where ``sqrt((1 - cosine) / 2)`` exceeds
    ``gamma_max``, the noise in the updates.

    >>> updates = [[1, 0], [-1, 0], [1, 0.1], [0, -1]]
    >>> round(cross_similarity(updates, bipartition(updates)), 2)
    0.0
    """
    points = unit_rows(updates)
    first, second = parts
    return float((points[first] @ points[second].T).max())


class Cfl(Grouping):
    """The cohorts of one run.

    - ``mean_below``, ``max_above``: see :func:`stationary_but_torn`.
    - ``smallest``: cohorts of fewer clients are not split.
    - ``after_round``: no split up to this round.
    - ``cross_below``: no split where two clients of different parts have updates that are at least
      this much alike; 1 splits in any case.

    Clients keep their names, whatever their positions among the participants of a cohort:

    >>> cfl = Cfl(after_round=0)
    >>> cfl.observe("0", list("abcd"), [[2, 0], [-2, 0], [-2, 0.1], [2, 0.1]], round=1)
    ['0.0', '0.1']
    >>> cfl.observe("0.1", list("cbx"), [[0, 2], [0, -2], [0, 0]], round=2)
    ['0.1.0', '0.1.1']
    >>> cfl.members.of(list("abcd"))
    {'0.0': ['a', 'd'], '0.1.0': ['c'], '0.1.1': ['b']}
    """

    def __init__(
        self,
        mean_below: float = 0.4,
        max_above: float = 1.6,
        smallest: int = 3,
        after_round: int = 20,
        cross_below: float = 1.0,
    ) -> None:
        at_least(0, mean_below=mean_below, max_above=max_above)
        at_least(2, smallest=smallest)
        self.mean_below, self.max_above = mean_below, max_above
        self.smallest, self.after_round = smallest, after_round
        self.cross_below = cross_below
        self.members = Membership()

    def observe(self, leaf: str, keys: Sequence[str], updates: ArrayLike, round: int) -> list[str]:
        """Process one round of a leaf; return its children, none if it is not split."""
        if len(keys) != len(np.asarray(updates)):
            raise ValueError(f"updates: expected {len(keys)} rows, one per key")
        for key in keys:
            self.members.put(key, leaf)
        if round <= self.after_round or len(keys) < self.smallest:
            return []
        if not stationary_but_torn(updates, self.mean_below, self.max_above):
            return []
        parts = bipartition(updates)
        if self.cross_below < 1 and cross_similarity(updates, parts) >= self.cross_below:
            return []
        return self.members.split(leaf, [[keys[i] for i in part.tolist()] for part in parts])
