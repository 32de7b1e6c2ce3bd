"""The samples that a device keeps of its stream: in memory, or in a file.

A store is read when it is opened and written by :meth:`SampleStore.commit`; what happens in between
is lost if nobody commits. So samples change together with the message that changed them. The memo
goes with them: what the rule that chose the samples knows about them, and how far it has read the
stream.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core.storage.tree import Tree
from .sample_file import Row, SampleFile

Ints = NDArray[np.int64]

_log = logging.getLogger("forager")


class SampleStore:
    """Keeps samples under their keys, in memory, up to a capacity.

    Parameters
    ----------
    capacity : int
        Most samples to keep.
    capacity_bytes : int
        Most bytes that they may take; 0 for no limit.

    Attributes
    ----------
    memo : dict
        What is to be kept with the samples: a tree of arrays, numbers and texts.

    Examples
    --------
    >>> store = SampleStore(capacity=2)
    >>> store.swap([], [7, 8], np.array([[0.5], [0.25]]), [1, 0])
    True
    >>> store.swap([7], [9], np.array([[2.0]]), [1])  # 9 in place of 7
    True
    >>> store.keys.tolist(), store.read([9])
    ([8, 9], (array([[2.]]), array([1])))
    >>> store.swap([], [10], np.array([[4.0]]), [1])  # there is no room
    False
    """

    def __init__(self, capacity: int, capacity_bytes: int = 0) -> None:
        for name, value in {"capacity": capacity, "capacity_bytes": capacity_bytes}.items():
            if value < 0:
                raise ValueError(f"{name}: expected 0 or more, got {value!r}")
        self.capacity, self.capacity_bytes = capacity, capacity_bytes
        self.memo: Tree = {}
        self._like: NDArray[Any] = np.empty(0, dtype=np.float32)  # shape and type of a sample
        self._labels: dict[int, int] = {}
        self._inputs: dict[int, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, key: int) -> bool:
        return key in self._labels

    @property
    def keys(self) -> Ints:
        """Keys of the stored samples, in the order in which they came."""
        return np.fromiter(self._labels, dtype=np.int64, count=len(self))

    @property
    def nbytes(self) -> int:
        """Bytes that the stored samples take."""
        return len(self) * self._like.nbytes

    def places(self, sample: NDArray[Any]) -> int:
        """Return how many samples like this one fit into the capacity.

        >>> SampleStore(10, capacity_bytes=1000).places(np.zeros((6, 10), dtype=np.float32))
        4
        """
        fit = self.capacity_bytes // max(1, sample.nbytes)
        return min(self.capacity, fit) if self.capacity_bytes else self.capacity

    def swap(self, evicted: ArrayLike, keys: ArrayLike, x: ArrayLike, y: ArrayLike) -> bool:
        """Store samples in place of evicted ones; if that cannot be, say so and change nothing.

        Parameters
        ----------
        evicted : array of int
            Keys to drop; those that are not stored are passed over.
        keys : array of int
            Keys of the new samples.
        x, y : array
            The samples, all of one shape and type, and their labels.

        Returns
        -------
        bool
            False if there is no room: the capacity would be exceeded.
        """
        names, labels = _integers("keys", keys), _integers("y", y)
        replaced = dict.fromkeys([*_integers("evicted", evicted), *names])
        gone = [key for key in replaced if key in self._labels]
        if len(labels) != len(names):
            raise ValueError(f"y: expected {len(names)} labels as in keys, got {len(labels)}")
        new = dict(zip(names, labels, strict=True))
        inputs = self._checked(np.asarray(x), len(names)) if names else np.empty(0)
        count = len(self._labels.keys() - set(gone) | new.keys())
        if names and count > self.places(inputs[0]):
            _log.warning("no room for %d samples beside %d: not kept", len(new), len(self))
            return False
        self._change(gone, new, dict(zip(names, inputs, strict=True)))
        return True

    def retain(self, keys: ArrayLike) -> None:
        """Drop all samples but these."""
        others = set(self._labels) - set(_integers("keys", keys))
        self._change(sorted(others), {}, {})

    def read(self, keys: ArrayLike | None = None) -> tuple[NDArray[Any], Ints]:
        """Return the samples of these keys, or all, and their labels."""
        wanted = list(self._labels) if keys is None else _integers("keys", keys)
        missing = [key for key in wanted if key not in self._labels]
        if missing:
            raise KeyError(f"keys: not stored: {missing[:5]}")
        inputs = np.empty((len(wanted), *self._like.shape), dtype=self._like.dtype)
        for row, key in enumerate(wanted):
            inputs[row] = self._inputs[key]
        return inputs, np.array([self._labels[key] for key in wanted], dtype=np.int64)

    def commit(self) -> None:
        """Make the present content what is found when the store is opened again."""

    def state_dict(self) -> dict[str, Any]:
        """Return all samples and the memo."""
        x, y = self.read()
        return {"keys": self.keys, "x": x, "y": y, "memo": self.memo}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned, up to the capacity."""
        self.retain([])
        x, room = state["x"], self.places(state["x"][0]) if len(state["x"]) else 0
        self.swap([], state["keys"][:room], x[:room], state["y"][:room])
        self.memo = dict(state["memo"])

    def _checked(self, inputs: NDArray[Any], count: int) -> NDArray[Any]:
        """Return samples if they are like those before; where there are none they set the rule."""
        kind = f"{inputs.dtype} of shape {inputs.shape}"
        if inputs.ndim == 0 or len(inputs) != count or inputs.dtype.kind not in "fiub":
            raise ValueError(f"x: expected {count} arrays of numbers, got {kind}")
        if not len(self):
            self._like = np.empty_like(inputs[0])
        if (inputs.shape[1:], inputs.dtype) != (self._like.shape, self._like.dtype):
            expected = f"{self._like.dtype} of shape {(count, *self._like.shape)}"
            raise ValueError(f"x: expected {expected}, like what is stored, got {kind}")
        return inputs

    def _change(
        self, gone: list[int], new: Mapping[int, int], inputs: Mapping[int, NDArray[Any]]
    ) -> None:
        """Drop and store."""
        for key in gone:
            del self._labels[key], self._inputs[key]
        self._labels.update(new)
        self._inputs.update({key: np.array(sample) for key, sample in inputs.items()})


class DiskStore(SampleStore):
    """Keeps samples in a file, up to a capacity; a crash leaves it as before a commit or after.

    A file that is damaged, or of something else, is set aside under another name.

    Parameters
    ----------
    path : Path
        The file; it is made when there is something to commit.
    made_for : str
        What the samples are for.
    capacity, capacity_bytes : int
        As in :class:`SampleStore`.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = DiskStore(Path(folder.name, "samples"), "digits", capacity=5)
    >>> store.swap([], [7], np.array([[0.5]]), [1])
    True
    >>> len(DiskStore(Path(folder.name, "samples"), "digits", capacity=5))  # not yet
    0
    >>> store.commit()
    >>> DiskStore(Path(folder.name, "samples"), "digits", capacity=5).read()
    (array([[0.5]]), array([1]))
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, made_for: str, capacity: int, capacity_bytes: int = 0) -> None:
        super().__init__(capacity, capacity_bytes)
        self._file = SampleFile(path, made_for)
        self._on_disk: set[int] = set()  # keys of samples that are there as they are here
        content = self._file.read()
        self.memo = content.memo
        for row in content.rows:
            self._like = row.x
            self._labels[row.key], self._inputs[row.key] = row.label, row.x
            self._on_disk.add(row.key)

    def commit(self) -> None:
        """Write what has changed, all of it or, as when the disk is full, nothing."""
        new = [
            Row(key, self._labels[key], self._inputs[key])
            for key in self._labels
            if key not in self._on_disk
        ]
        if self._file.write(new, set(self._labels), self.memo):
            self._on_disk = set(self._labels)

    def _change(
        self, gone: list[int], new: Mapping[int, int], inputs: Mapping[int, NDArray[Any]]
    ) -> None:
        self._on_disk -= {*gone, *new}
        super()._change(gone, new, inputs)


def _integers(name: str, values: ArrayLike) -> list[int]:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"{name}: expected whole numbers, got {numbers.dtype} {numbers.shape}")
    return [int(number) for number in numbers]
