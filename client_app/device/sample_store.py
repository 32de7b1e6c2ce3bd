"""The samples that a device keeps of its stream: in memory, or in a file.

A store is read when it is opened and written by :meth:`SampleStore.commit`, together with the memo:
what the rule knows about the samples, and how far it has read the stream.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core.storage.tree import Tree
from ...selectors.stateful import Stateful
from .sample_file import SampleFile, StoredSample

Ints = NDArray[np.int64]

_log = logging.getLogger("forager")


class SampleStore(Stateful):
    """Keeps samples under their keys, in memory, up to a capacity."""

    remembers = ("keys", "_x", "_y", "memo")

    def __init__(self, capacity: int, capacity_bytes: int = 0) -> None:
        for name, value in {"capacity": capacity, "capacity_bytes": capacity_bytes}.items():
            if value < 0:
                raise ValueError(f"{name}: expected 0 or more, got {value!r}")
        self.capacity, self.capacity_bytes = capacity, capacity_bytes
        self.memo: Tree = {}
        # Keys in the order in which samples came. These arrays are replaced, never changed in
        # place: whoever holds the state holds them too.
        self.keys: Ints = np.empty(0, dtype=np.int64)
        self._x: NDArray[Any] = np.empty(0, dtype=np.float32)
        self._y: Ints = self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def places(self, sample: NDArray[Any]) -> int:
        """Return how many samples like this one fit into the capacity."""
        fit = self.capacity_bytes // max(1, sample.nbytes)
        return min(self.capacity, fit) if self.capacity_bytes else self.capacity

    def swap(self, evicted: ArrayLike, keys: ArrayLike, x: ArrayLike, y: ArrayLike) -> bool:
        """Store samples, each key once, in place of evicted ones; False if there is no room."""
        names, labels, inputs = _integers("keys", keys), _integers("y", y), np.asarray(x)
        if len(labels) != len(names):
            raise ValueError(f"y: expected {len(names)} labels as in keys, got {len(labels)}")
        stay = self._others([*_integers("evicted", evicted).tolist(), *names.tolist()])
        if not len(names):
            self._put(stay, names, self._x[:0], labels)
            return True
        self._check(inputs, len(names))
        if sum(stay) + len(names) > self.places(inputs[0]):
            _log.warning("no room for %d samples beside %d: not kept", len(names), len(self))
            return False
        self._put(stay, names, inputs, labels)
        return True

    def retain(self, keys: ArrayLike) -> None:
        """Drop all samples but these."""
        gone = self._others(_integers("keys", keys).tolist())
        if any(gone):
            self._put([not each for each in gone], self.keys[:0], self._x[:0], self._y[:0])

    def read(self, keys: ArrayLike | None = None) -> tuple[NDArray[Any], Ints]:
        """Return the samples of these keys, or all, and their labels."""
        if keys is None:
            return self._x.copy(), self._y.copy()
        places = {key: place for place, key in enumerate(self.keys.tolist())}
        wanted = _integers("keys", keys).tolist()
        missing = [key for key in wanted if key not in places]
        if missing:
            raise KeyError(f"keys: not stored: {missing[:5]}")
        rows = [places[key] for key in wanted]
        return self._x[rows], self._y[rows]

    def commit(self) -> None:
        """Make the present content what is found when the store is opened again."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, up to the capacity."""
        x = state["x"]
        room = self.places(x[0]) if len(x) else 0
        self.keys, self._x, self._y = state["keys"][:room], x[:room], state["y"][:room]
        self.memo = dict(state["memo"])

    def _check(self, inputs: NDArray[Any], count: int) -> None:
        """Refuse samples that are not like those before; where there are none they set the rule."""
        kind = f"{inputs.dtype} of shape {inputs.shape}"
        if inputs.ndim == 0 or len(inputs) != count or inputs.dtype.kind not in "fiub":
            raise ValueError(f"x: expected {count} arrays of numbers, got {kind}")
        if not len(self):
            self._x = inputs[:0]
        if (inputs.shape[1:], inputs.dtype) != (self._x.shape[1:], self._x.dtype):
            expected = f"{self._x.dtype} of shape {(count, *self._x.shape[1:])}"
            raise ValueError(f"x: expected {expected}, like what is stored, got {kind}")

    def _others(self, keys: list[int]) -> list[bool]:
        """Return of each stored sample whether it is none of these."""
        named = set(keys)
        return [key not in named for key in self.keys.tolist()]

    def _put(self, stay: list[bool], keys: Ints, x: NDArray[Any], y: Ints) -> None:
        """Drop what does not stay, and store new samples behind the rest."""
        self.keys = np.concatenate([self.keys[stay], keys])
        self._x, self._y = np.concatenate([self._x[stay], x]), np.concatenate([self._y[stay], y])


class DiskStore(SampleStore):
    """Keeps samples in a file, up to a capacity; a crash leaves it as before a commit or after.

    ``committed`` is called after each commit that has reached the disk; not where the disk is full.
    """

    def __init__(
        self,
        path: Path,
        made_for: str,
        capacity: int,
        capacity_bytes: int = 0,
        committed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(capacity, capacity_bytes)
        self._file, self._committed = SampleFile(path, made_for), committed
        self._on_disk: set[int] = set()  # keys of samples that are there as they are here
        content = self._file.read()
        self.memo = content.memo
        if content.rows:
            keys, labels, inputs = zip(*content.rows, strict=True)
            self.keys, self._y = np.array(keys), np.array(labels)
            self._x = np.stack(inputs)
            self._on_disk.update(keys)

    def commit(self) -> None:
        """Write what has changed, all of it or, as when the disk is full, nothing."""
        all_rows = map(StoredSample, self.keys.tolist(), self._y.tolist(), self._x)
        new = [row for row in all_rows if row.key not in self._on_disk]
        held = set(self.keys.tolist())
        if self._file.write(new, held, self.memo):
            self._on_disk = held
            if self._committed is not None:
                self._committed()

    def _put(self, stay: list[bool], keys: Ints, x: NDArray[Any], y: Ints) -> None:
        super()._put(stay, keys, x, y)
        self._on_disk &= set(self.keys.tolist())
        self._on_disk.difference_update(keys.tolist())


def _integers(name: str, values: ArrayLike) -> Ints:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"{name}: expected whole numbers, got {numbers.dtype} {numbers.shape}")
    return numbers.astype(np.int64)
