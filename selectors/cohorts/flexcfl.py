"""FlexCFL (FedGroup): groups by the decomposed cosine of pretraining updates.

Duan et al., 2021: *FedGroup*, sections 3.2 and 3.3. Some clients train from the same model; their
updates are projected on the leading directions of all of them, and k-means groups the projections.
A client that comes later joins the group whose direction is closest to its own pretraining update.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans

from cohorts.projection import unit_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Groups:
    """The group of each client, and the direction of each group (one row a group)."""

    labels: NDArray[np.intp]
    directions: Floats


def decomposed_cosine(updates: ArrayLike, directions: int) -> Floats:
    """Return the cosines of updates to the leading right singular directions of all of them (EDC).

    >>> decomposed_cosine([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]], 2).round(3).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    points = unit_rows(updates)
    _, _, axes = np.linalg.svd(points, full_matrices=False)
    leading = axes[:directions]
    signs = np.sign(leading[np.arange(len(leading)), np.argmax(np.abs(leading), axis=1)])
    return np.asarray(points @ (leading * signs[:, None]).T)


def group(updates: ArrayLike, groups: int, seed: int = 0) -> Groups:
    """Return groups of clients by their pretraining updates.

    >>> found = group([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 2.0]], 2)
    >>> found.labels.tolist()
    [0, 0, 1, 1]
    """
    points = unit_rows(updates)
    count = max(1, min(groups, len(points)))
    reduced = decomposed_cosine(points, count)
    labels = KMeans(count, n_init=5, random_state=seed).fit(reduced).labels_
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    labels = np.argsort(np.argsort(first))[inverse]
    means = [points[labels == label].mean(axis=0) for label in range(labels.max() + 1)]
    return Groups(labels, unit_rows(means))


def join(update: ArrayLike, directions: ArrayLike) -> int:
    """Return the group for a newcomer: the smallest ``(1 - cosine) / 2``.

    >>> join([0.0, 3.0], [[1.0, 0.0], [0.0, 1.0]])
    1
    """
    return int(np.argmax(unit_rows(directions) @ unit_rows([update])[0]))
