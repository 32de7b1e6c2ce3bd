"""Partitions in whole arrays.

flwr-datasets makes a list, and then a table, for every client: minutes for 100,000 of them. These
make the same partitions, draw by draw, with nothing done once per client; a test compares both.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .errors import invalid
from .groups import group_of
from .spec import TaskSpec

Indices = NDArray[np.int64]

_TRIES = 11  # draws after which flwr-datasets gives up to leave nobody without samples


def iid(_spec: TaskSpec, groups: NDArray[np.int64], clients: int) -> tuple[Indices, Indices]:
    """Cut the samples, as they come, into runs of equal length; the first get one more."""
    each, more = divmod(len(groups), clients)
    numbers = np.arange(clients + 1)
    return np.arange(len(groups)), numbers * each + np.minimum(numbers, more)


def dirichlet(spec: TaskSpec, groups: NDArray[np.int64], clients: int) -> tuple[Indices, Indices]:
    """Deal out each class by shares drawn from a Dirichlet distribution (Yurochkin et al., 2019).

    If some are left without samples, all is drawn again, ten times at most; then they stay without.
    """
    classes = [np.flatnonzero(groups == label) for label in np.unique(groups)]
    dealt = None
    rng = np.random.default_rng(spec.seed)
    for _ in range(_TRIES):
        dealt = _dealt(classes, clients, float(spec.alpha), rng)
        if dealt[1].min() > 0:
            break
    else:  # a second partitioner, which does not mind, begins with the same seed
        rng = np.random.default_rng(spec.seed)
        dealt = _dealt(classes, clients, float(spec.alpha), rng)
    owners, sizes = dealt
    order = np.concatenate(classes)[np.argsort(owners, kind="stable")]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    for client in np.flatnonzero(sizes > 1):
        rng.shuffle(order[offsets[client] : offsets[client + 1]])
    return order, offsets


def _dealt(
    classes: list[Indices], clients: int, alpha: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return the owner of every sample, class by class, and how many samples each client has."""
    sizes = np.zeros(clients, dtype=np.int64)
    owners = []
    for members in classes:
        shares = rng.dirichlet(np.full(clients, alpha))
        ends = (np.cumsum(shares) * len(members)).astype(np.int64)
        ends[-1] = len(members)
        counts = np.diff(ends, prepend=0)
        owners.append(np.repeat(np.arange(clients), counts))
        sizes += counts
    return np.concatenate(owners), sizes


def natural(_spec: TaskSpec, groups: NDArray[np.int64], clients: int) -> tuple[Indices, Indices]:
    """Give every client the samples of its own group."""
    sizes = np.bincount(groups, minlength=clients)
    return np.argsort(groups, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])


def class_groups(
    spec: TaskSpec, groups: NDArray[np.int64], clients: int
) -> tuple[Indices, Indices]:
    """Deal out classes to planted groups; the clients of a group share its samples in turn."""
    if clients < spec.group_count:
        raise invalid("group_count", spec.group_count, f"at most {clients} clients")
    block = groups * spec.group_count // (int(groups.max()) + 1)
    parts = []
    for client in range(clients):
        group = group_of(client, spec.group_count)
        sharers = range(group, clients, spec.group_count)
        parts.append(np.flatnonzero(block == group)[sharers.index(client) :: len(sharers)])
    return np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])])


ARRAY_PARTITIONS: dict[
    str, Callable[[TaskSpec, NDArray[np.int64], int], tuple[Indices, Indices]]
] = {"iid": iid, "dirichlet": dirichlet, "class-groups": class_groups, "natural": natural}
