"""The samples that a device keeps of its stream: in memory, or in a file that survives a crash.

The file is a log (``record_log.py``): samples are appended, and so are notes that a sample is gone.
Once most of it is about samples that are gone, a new file is written and takes its place.
"""

import errno
import logging
import struct
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.storage.files import remove_leftovers
from .record_log import CutOffError, RecordLog, RecordLogError

Ints = NDArray[np.int64]

_log = logging.getLogger("forager")

_KIND, _VERSION = "sample-store", 1
_NOTE = struct.Struct("<Bqq")  # what happened, key, label; then the sample, if it was stored
_STORED, _GONE = 1, 2
_SLACK = 1 << 16  # bytes about what is gone that are not worth a new file
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class SampleStoreError(ValueError):
    """A file does not hold the samples that are looked for; the message says what it holds."""


class SampleStore:
    """Keeps samples under their keys, in memory, up to a capacity.

    Parameters
    ----------
    capacity : int
        Samples that are kept at most.
    capacity_bytes : int
        Bytes that they take at most; 0 stands for any number.

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
            False if there is no room: the capacity would be exceeded, or the disk is full.
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
        return self._change(gone, new, dict(zip(names, inputs, strict=True)))

    def retain(self, keys: ArrayLike) -> None:
        """Drop all samples but these, as when a crash came between storing and deciding."""
        others = set(self._labels) - set(_integers("keys", keys))
        if not self.swap(sorted(others), [], [], []):
            for key in others:  # a full disk takes no note of it: they come back, and go again
                self._drop(key)

    def read(self, keys: ArrayLike | None = None) -> tuple[NDArray[Any], Ints]:
        """Return the samples of these keys, or all, and their labels."""
        wanted = list(self._labels) if keys is None else _integers("keys", keys)
        missing = [key for key in wanted if key not in self._labels]
        if missing:
            raise KeyError(f"keys: not stored: {missing[:5]}")
        inputs = np.empty((len(wanted), *self._like.shape), dtype=self._like.dtype)
        for row, key in enumerate(wanted):
            inputs[row] = self._input(key)
        return inputs, np.array([self._labels[key] for key in wanted], dtype=np.int64)

    def close(self) -> None:
        """Give back what the store holds open."""

    def state_dict(self) -> dict[str, Any]:
        """Return all samples; a store on disk needs no other place to be kept in."""
        x, y = self.read()
        return {"keys": self.keys, "x": x, "y": y}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned, up to the capacity."""
        self.retain([])
        x, room = state["x"], self.places(state["x"][0]) if len(state["x"]) else 0
        self.swap([], state["keys"][:room], x[:room], state["y"][:room])

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
    ) -> bool:
        """Drop and store; return whether it could be done."""
        for key in gone:
            self._drop(key)
        self._labels.update(new)
        self._inputs.update({key: np.array(sample) for key, sample in inputs.items()})
        return True

    def _drop(self, key: int) -> None:
        del self._labels[key], self._inputs[key]

    def _input(self, key: int) -> NDArray[Any]:
        return self._inputs[key]


class DiskStore(SampleStore):
    """Keeps samples in a file, up to a capacity.

    The file may grow to about twice the capacity in bytes before it is written anew.

    Parameters
    ----------
    path : Path
        The file; it is made when there is something to store.
    task : str
        What the samples are for. A file of another task is refused.
    capacity, capacity_bytes : int
        As in :class:`SampleStore`.

    Raises
    ------
    SampleStoreError
        If the file is of another task or version, or not of this kind at all.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = DiskStore(Path(folder.name, "samples"), "digits", capacity=5)
    >>> store.swap([], [7], np.array([[0.5]]), [1])
    True
    >>> store.close()
    >>> store = DiskStore(Path(folder.name, "samples"), "digits", capacity=5)
    >>> store.read()
    (array([[0.5]]), array([1]))
    >>> store.close(); folder.cleanup()
    """

    def __init__(self, path: Path, task: str, capacity: int, capacity_bytes: int = 0) -> None:
        super().__init__(capacity, capacity_bytes)
        self.path, self.task = path, task
        self._offsets: dict[int, int] = {}
        self._file: RecordLog | None = None
        remove_leftovers(path)
        if path.exists():
            self._open()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        """Read the file, as far as it is sound."""
        try:
            file = RecordLog(self.path, _KIND)
        except CutOffError as error:
            _log.warning("%s; it is put aside", error)
            self.path.replace(self.path.with_name(f"{self.path.name}.broken"))
            return
        except RecordLogError as error:
            raise SampleStoreError(str(error)) from error
        if file.lost:
            _log.warning("%s: its last %d bytes are broken: cut off", self.path, file.lost)
        self._check_header(file.header)
        self._like = np.empty(file.header["shape"], dtype=file.header["dtype"])
        self._file = file
        for offset, record in file.records():
            self._note(offset, record)

    def _check_header(self, header: Mapping[str, Any]) -> None:
        for name, mine in {"version": _VERSION, "task": self.task}.items():
            if header.get(name) != mine:
                raise SampleStoreError(
                    f"{self.path}: holds samples of {name} {header.get(name)!r}, not {mine!r}; "
                    "give another state-dir, or delete the file"
                )

    def _note(self, offset: int, record: bytes) -> None:
        """Take in one record of the file."""
        what, key, label = _NOTE.unpack_from(record)
        if key in self._labels:
            self._drop(key)
        if what == _STORED:
            self._labels[key], self._offsets[key] = label, offset

    def _change(
        self, gone: list[int], new: Mapping[int, int], inputs: Mapping[int, NDArray[Any]]
    ) -> bool:
        stored = [_NOTE.pack(_STORED, key, new[key]) + inputs[key].tobytes() for key in new]
        left = [_NOTE.pack(_GONE, key, 0) for key in gone if key not in new]
        # One goes before another takes its place: cut off anywhere, it is never over the capacity.
        records = [note for pair in zip_longest(left, stored) for note in pair if note is not None]
        try:
            offsets = self._ready().append(records) if records else []
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            _log.warning("%s: %s: what is stored stays, nothing new", self.path, error.strerror)
            return False
        for offset, record in zip(offsets, records, strict=True):
            self._note(offset, record)
        self._tidy()
        return True

    def _ready(self) -> RecordLog:
        """Return the file, made anew if there is none for samples like these."""
        like = {"shape": list(self._like.shape), "dtype": self._like.dtype.str}
        header = {"version": _VERSION, "task": self.task} | like
        if self._file is None or self._file.header != header:
            file = RecordLog.create(self.path, header, _KIND)
            self.close()
            self._file = file
        return self._file

    def _tidy(self) -> None:
        """Write the file anew if more than half of it is about what is gone."""
        if self._file is None or self._file.end < 2 * self._bytes_on_disk + _SLACK:
            return
        try:
            offsets = self._file.rewrite(self._offsets.values())
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            _log.warning("%s: %s: it cannot be written anew", self.path, error.strerror)
            return
        self._offsets = dict(zip(self._offsets, offsets, strict=True))

    @property
    def _bytes_on_disk(self) -> int:
        """Bytes of a file with nothing in it but the stored samples."""
        return len(self) * (self._like.nbytes + _NOTE.size + RecordLog.OVERHEAD)

    def _drop(self, key: int) -> None:
        del self._labels[key], self._offsets[key]

    def _input(self, key: int) -> NDArray[Any]:
        assert self._file is not None  # something is stored
        record = self._file.read(self._offsets[key])
        sample = np.frombuffer(record, dtype=self._like.dtype, offset=_NOTE.size)
        return sample.reshape(self._like.shape)


def _integers(name: str, values: ArrayLike) -> list[int]:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"{name}: expected whole numbers, got {numbers.dtype} {numbers.shape}")
    return [int(number) for number in numbers]
