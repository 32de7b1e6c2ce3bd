"""The pieces of data a run works on, and the seeded ways to cut them."""

import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Batch = tuple[Any, torch.Tensor]
Key = TypeVar("Key", bound=Hashable)


class Samples(ABC):
    """Samples with their targets, in memory (:class:`Split`) or lazy; batches are positions."""

    x: torch.Tensor  # all inputs in memory, one sample per row
    y: torch.Tensor  # all targets in memory, one sample per row

    @abstractmethod
    def __len__(self) -> int:
        """Count the samples."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory that is taken."""

    @cached_property
    def fingerprint(self) -> str:
        """What distinguishes samples from others: number and checksum, of lazy ones' targets."""
        return f"{len(self)}-{_checksum(self.y)}"

    @abstractmethod
    def select(self, positions: torch.Tensor) -> "Samples":
        """Return some of the samples."""

    @abstractmethod
    def follow(self, plan: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """Yield inputs and targets of one batch after the other, by the positions in a plan."""

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield inputs and targets of all samples, in order."""
        places = torch.arange(len(self))
        return self.follow(places[start : start + size] for start in range(0, len(self), size))


@dataclass(frozen=True)
class Split(Samples):
    """Samples in memory."""

    x: torch.Tensor  # inputs, one sample per row: float32, or int64 for token ids
    y: torch.Tensor  # targets, one row per sample: int64 labels, or what the problem's loss takes

    def __len__(self) -> int:
        return self.y.shape[0]  # a third of the time of len()

    @cached_property
    def nbytes(self) -> int:
        """Memory that the tensors take."""
        return self.x.nbytes + self.y.nbytes

    @cached_property
    def fingerprint(self) -> str:
        """What distinguishes samples from others: number and checksums."""
        return f"{len(self)}-{_checksum(self.x)}-{_checksum(self.y)}"

    def select(self, positions: torch.Tensor) -> "Split":
        """Return some of the samples."""
        return Split(self.x[positions], self.y[positions])

    def follow(self, plan: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """Yield inputs and targets of one batch after the other."""
        return ((self.x[positions], self.y[positions]) for positions in plan)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield inputs and targets of all samples, in order, without copying them."""
        return (
            (self.x[start : start + size], self.y[start : start + size])
            for start in range(0, len(self), size)
        )


def _checksum(column: torch.Tensor) -> str:
    return f"{zlib.crc32(column.contiguous().numpy().view('uint8').data):08x}"


@dataclass(frozen=True)
class ClientData:
    """What one client holds, with the truth about what noise did to it."""

    train: Samples
    test: Samples
    true_labels: torch.Tensor  # strata of ``train`` before noise: the labels, if there are classes
    clean: torch.Tensor  # where neither label nor input of a ``train`` sample was corrupted

    @property
    def nbytes(self) -> int:
        """Memory that the tensors take."""
        return self.train.nbytes + self.test.nbytes + self.true_labels.nbytes + self.clean.nbytes


@dataclass(frozen=True)
class ServerData:
    """What the server holds: clean validation samples and the global test set."""

    validation: Samples
    test: Samples


def generator(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """Random generator that belongs to one purpose, so that draws never shift each other."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *ids])


def stratified_split(
    labels: NDArray[np.int64], share: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Positions cut in two, each class in the same proportion as far as whole samples allow."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    ideal = (counts * share).astype(np.float64)
    quotas = _largest_remainder(ideal, round(share * len(labels)))
    shuffled = rng.permutation(len(labels))
    in_first = np.zeros(len(labels), dtype=bool)
    in_first[shuffled] = _rank_in_group(classes[shuffled]) < quotas[classes[shuffled]]
    return np.flatnonzero(in_first), np.flatnonzero(~in_first)


def _largest_remainder(ideal: NDArray[np.float64], total: int) -> Indices:
    """Whole numbers near the ideal ones that add up to the total."""
    quotas = np.floor(ideal).astype(np.int64)
    neediest = np.argsort(quotas - ideal, kind="stable")
    quotas[neediest[: total - quotas.sum()]] += 1
    return quotas


def _rank_in_group(groups: NDArray[np.int64]) -> Indices:
    """How many earlier entries belong to the same group, for every entry."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], groups[order])
    ranks = np.empty(len(groups), dtype=np.int64)
    ranks[order] = np.arange(len(groups)) - starts
    return ranks


def hold_out(count: int, share: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Positions of the samples kept for training and of those held out, at random."""
    shuffled = rng.permutation(count)
    held = int(count * share)
    return np.sort(shuffled[held:]), np.sort(shuffled[:held])


def share_between_owner_and_server(
    owners: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Halve every owner's samples; of an odd number the owner keeps the extra one."""
    shuffled = rng.permutation(len(owners))
    keeps = np.empty(len(owners), dtype=bool)
    keeps[shuffled] = _rank_in_group(owners[shuffled]) % 2 == 0
    return np.flatnonzero(keeps), np.flatnonzero(~keeps)


class ClientCache:
    """Data of the clients used last, as many as fit into a given number of bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._kept: OrderedDict[Hashable, ClientData] = OrderedDict()

    def get(self, key: Key, make: Callable[[Key], ClientData]) -> ClientData:
        """Give the data under a key, made from it now if it is not there."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        made = self._kept[key] = make(key)
        self._used += made.nbytes
        while self._used > self._limit and len(self._kept) > 1:
            self._used -= self._kept.popitem(last=False)[1].nbytes
        return made
