"""FedGroup, also FlexCFL: groups of clients by the decomposed cosine of a first update.

Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren: *Flexible Clustered Federated Learning for Client-Level
Data Distribution Shift*. Before the first round some clients train alone for a while. Their updates
are grouped by their cosines with the main directions of all of these updates. Every other client
trains alone once, and joins the group whose first update is most similar to its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans

from ..checks import at_least
from ..stateful import Stateful
from .online import numbered_as_they_come
from .projection import unit_rows
from .tree import ROOT, Grouping, Membership

Floats = NDArray[np.float64]

_SEED = 0


def pretrained(groups: int, clients: int) -> int:
    """Return how many clients train alone before the first round."""
    return min(20 * groups, clients)


def decomposed_cosine(updates: ArrayLike, directions: int) -> Floats:
    """Return the cosines of each update with the main directions of all of them.

    The directions are the first right singular vectors: a client is described by a few numbers.
    """
    rows = np.asarray(updates, dtype=np.float64)
    unit = unit_rows(rows)
    at_least(1, directions=directions)
    if rows.size == 0:
        return np.zeros((len(rows), 0))
    _, _, main = np.linalg.svd(rows, full_matrices=False)
    main = main[:directions]
    # The sign of a singular vector is arbitrary: let its largest entry be positive.
    largest = np.take_along_axis(main, np.argmax(np.abs(main), axis=1)[:, None], axis=1)
    cosines: Floats = unit @ (main * np.where(largest < 0, -1.0, 1.0)).T
    return cosines


def group_clients(updates: ArrayLike, groups: int) -> NDArray[np.intp]:
    """Return the group of each client, by k-means of the decomposed cosines.

    Fewer groups where fewer clients differ.
    """
    cosines = decomposed_cosine(updates, groups)
    distinct = len(np.unique(cosines.round(9), axis=0))
    if distinct < 2 or groups < 2:
        return np.zeros(len(cosines), dtype=np.intp)
    clusters = KMeans(min(groups, distinct), n_init=10, random_state=_SEED)
    return numbered_as_they_come(clusters.fit(cosines).labels_)


class FlexCfl(Stateful, Grouping):
    """The groups of one run.

    - ``groups``: how many at most.

    >>> flex = FlexCfl(groups=2)
    >>> flex.start(list("abcd"), [[1, 0.1], [0, 1], [1, 0], [0.1, 1]])
    ['0.0', '0.1']
    >>> flex.join("new", [0.2, 0.9])
    '0.1'
    """

    remembers = ("members", "_first")

    def __init__(self, groups: int = 2) -> None:
        at_least(1, groups=groups)
        self.groups, self.members = groups, Membership()
        self._first: Floats = np.empty((0, 0))  # mean first update of each group

    def start(self, keys: Sequence[str], updates: ArrayLike) -> list[str]:
        """Group the clients that trained alone, and return the groups."""
        rows, labels = np.asarray(updates, dtype=np.float64), group_clients(updates, self.groups)
        if len(labels) != len(keys) or len(keys) == 0:
            raise ValueError(f"updates: expected {len(keys)} rows, one per key, and at least one")
        found = range(int(labels.max()) + 1)
        self._first = np.stack([rows[labels == label].mean(axis=0) for label in found])
        for key in keys if len(found) == 1 else ():
            self.members.put(key, ROOT)
        return self.split_by(labels, keys)

    def join(self, key: str, update: ArrayLike) -> str:
        """Return the group that a newcomer joins: least ``(1 - cos) / 2`` to its first update."""
        if self._first.size == 0:
            raise ValueError("join: there are no groups before the start")
        own = unit_rows(np.asarray(update, dtype=np.float64).reshape(1, -1))[0]
        leaf = self.leaves()[int(np.argmin((1 - unit_rows(self._first) @ own) / 2))]
        self.members.put(key, leaf)
        return leaf

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        first, leaves = np.asarray(state["first"]), state["members"]["tree"]["leaves"]
        if first.size and len(first) != len(leaves):
            raise ValueError(f"state: {len(first)} first updates for the groups {leaves}")
        super().load_state_dict(state)
