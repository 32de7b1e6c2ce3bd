"""How the training pool is spread over clients."""

import hashlib
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .array_partitions import ARRAY_PARTITIONS
from .datasets.raw import RawData
from .datasets.storage import Arrays, cache_folder, cached_arrays
from .errors import TaskError, invalid, optional_packages
from .spec import TaskSpec
from .splits import Indices, generator

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
