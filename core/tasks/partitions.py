"""How the training pool is spread over clients."""

import hashlib
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .datasets.raw import RawData
from .datasets.storage import Arrays, cache_folder, cached_arrays
from .errors import TaskError, invalid, optional_packages
from .groups import group_of
from .spec import TaskSpec
from .splits import Indices, generator

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


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Partitions:
    """Sample numbers of every client, one client after the other."""

    order: Indices
    offsets: Indices

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Indices:
        return self.order[self.offsets[client] : self.offsets[client + 1]]


def partition(spec: TaskSpec, raw: RawData, num_partitions: int) -> Partitions:
    """Spread the training pool over clients."""
    groups = user_groups(raw, num_partitions) if spec.partition == "natural" else raw.y_train
    _check_possible(spec, groups, num_partitions)
    with optional_packages(f"partition = {spec.partition!r}"):
        arrays = cached_arrays(
            cache_folder(spec.cache_dir) / "partitions",
            _key(spec, groups, num_partitions),
            lambda: _spread(spec, groups, num_partitions),
        )
    return Partitions(arrays["order"], arrays["offsets"])


def user_groups(
    raw: RawData, num_partitions: int, users: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Client of every sample: users in sorted order, neighbours together if clients are fewer."""
    if raw.user_train is None:
        raise TaskError(
            "partition = 'natural' needs data with users, and this data has no user_train: "
            "use one of iid, dirichlet, shards, pathological"
        )
    known = np.unique(raw.user_train)
    if num_partitions > len(known):
        allowed = f"at most {len(known)}, the number of users in the data"
        raise invalid("num_partitions", num_partitions, allowed)
    owners = raw.user_train if users is None else users
    places = np.minimum(np.searchsorted(known, owners), len(known) - 1)
    groups = places * num_partitions // len(known)
    return np.where(known[places] == owners, groups, -1)


def _check_possible(spec: TaskSpec, groups: NDArray[np.int64], num_partitions: int) -> None:
    samples = len(groups)
    if not samples:
        raise TaskError(f"task = {spec.task!r}: x_train holds no samples")
    if not 1 <= num_partitions <= samples:
        allowed = f"1 to {samples}, the number of training samples"
        raise invalid("num_partitions", num_partitions, allowed)
    if spec.partition == "shards" and num_partitions * spec.shards_per_client > samples:
        allowed = f"at most {samples // num_partitions} for {num_partitions} clients"
        raise invalid("shards_per_client", spec.shards_per_client, allowed)
    classes = len(np.unique(groups))
    if spec.partition == "pathological" and spec.classes_per_client > classes:
        allowed = f"at most {classes}, the number of classes in the data"
        raise invalid("classes_per_client", spec.classes_per_client, allowed)


def _key(spec: TaskSpec, groups: NDArray[np.int64], num_partitions: int) -> str:
    setting = {
        "dirichlet": spec.alpha,
        "shards": spec.shards_per_client,
        "pathological": spec.classes_per_client,
        "class-groups": spec.group_count,
    }.get(spec.partition)
    digest = hashlib.sha256(repr((1, setting, num_partitions, spec.seed)).encode())
    digest.update(np.ascontiguousarray(groups, dtype=np.int64).tobytes())
    return f"{spec.partition}-{num_partitions}-{digest.hexdigest()[:24]}"


def _spread(spec: TaskSpec, groups: NDArray[np.int64], num_partitions: int) -> Arrays:
    # Partitioners cut runs of samples as they come; a pool may be sorted by something.
    shuffled = generator(spec.seed, "partition").permutation(len(groups))
    labels = groups[shuffled]
    if spec.partition in ARRAY_PARTITIONS:
        order, offsets = ARRAY_PARTITIONS[spec.partition](spec, labels, num_partitions)
    else:
        partitioner = _BY_FLOWER[spec.partition](spec, num_partitions)
        try:
            parts = _run(partitioner, labels, num_partitions)
        except ValueError as error:
            raise TaskError(
                f"partition = {spec.partition!r} cannot spread {len(groups)} samples over "
                f"num-clients = {num_partitions}: {error}"
            ) from error
        order = np.concatenate(parts)
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    empty = np.count_nonzero(np.diff(offsets) == 0)
    if empty:
        _log.warning("%d of %d clients have no training data", empty, num_partitions)
    return {"order": shuffled[order], "offsets": offsets}


def _run(partitioner: Any, groups: NDArray[np.int64], num_partitions: int) -> list[Indices]:
    from datasets import Dataset

    partitioner.dataset = Dataset.from_dict({"number": np.arange(len(groups)), "group": groups})
    with warnings.catch_warnings():  # of classes that nobody gets
        warnings.simplefilter("ignore")
        parts = [partitioner.load_partition(client)["number"] for client in range(num_partitions)]
        return [np.array(part[:], dtype=np.int64) for part in parts]


def _shards(spec: TaskSpec, num_partitions: int) -> Any:
    from flwr_datasets.partitioner import ShardPartitioner

    return ShardPartitioner(num_partitions, "group", spec.shards_per_client, seed=spec.seed)


def _pathological(spec: TaskSpec, num_partitions: int) -> Any:
    from flwr_datasets.partitioner import PathologicalPartitioner

    mode: Any = "first-deterministic"  # so that every class has an owner if there are enough
    classes = spec.classes_per_client
    return PathologicalPartitioner(num_partitions, "group", classes, mode, seed=spec.seed)


_BY_FLOWER: dict[str, Callable[[TaskSpec, int], Any]] = {
    "shards": _shards,
    "pathological": _pathological,
}
PARTITIONERS = ("iid", "dirichlet", "shards", "pathological", "class-groups", "natural")
"""Names of all kinds."""
