"""The samples that a device keeps of its stream: in memory, or in a file that survives a crash.

The file is a log. Samples are appended, and so are notes that a sample is gone; every record has a
checksum. A process that is killed while it writes leaves at most one broken record, at the end,
which is cut off when the file is opened again. Once most of the log is about samples that are gone,
a new one is written beside it and takes its place.
"""

import errno
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wire import tree
from wire.files import replacing

Ints = NDArray[np.int64]
Samples = tuple[NDArray[Any], Ints]

_log = logging.getLogger("forager")

_VERSION = 1
_MAGIC = b"FORAGER-SAMPLES\n"
_LENGTH = struct.Struct("<I")
_RECORD = struct.Struct("<IBqq")  # checksum of the rest, kind, key, label; then the sample
_STORED, _GONE = 1, 2
_SLACK = 1 << 16  # bytes about what is gone that are not worth a new log
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class SampleStoreError(ValueError):
    """A file does not hold the samples that are looked for; the message says what it is."""


def places(capacity: int, capacity_bytes: int, sample: NDArray[Any]) -> int:
    """Return how many samples like this one fit; ``capacity_bytes`` of 0 stands for any number.

    >>> places(10, 1000, np.zeros((5, 12), dtype=np.float32))  # 261 bytes each
    3
    """
    size = _RECORD.size + sample.nbytes
    return min(capacity, capacity_bytes // size) if capacity_bytes else capacity


class SampleStore:
    """Keeps samples under their keys, in memory, up to a capacity.

    Parameters
    ----------
    capacity : int
        Samples that are kept at most.
    capacity_bytes : int
        Bytes that their records take at most; 0 stands for any number. On disk the log may grow to
        twice that before it is written anew.

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
        self._shape: tuple[int, ...] | None = None
        self._dtype = np.dtype(np.float32)
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
        """Bytes that the records of the stored samples take."""
        return len(self) * self._record_size

    def swap(self, evicted: ArrayLike, keys: ArrayLike, x: ArrayLike, y: ArrayLike) -> bool:
        """Store samples in place of evicted ones; if that cannot be, say so and change nothing.

        Parameters
        ----------
        evicted : array of int
            Keys to drop; those that are not stored are passed over.
        keys : array of int
            Keys of the new samples.
        x, y : array
            The samples and their labels. All samples of a store have one shape and type.

        Returns
        -------
        bool
            False if there is no room: the capacity would be exceeded, or the disk is full.
        """
        gone = [key for key in np.asarray(evicted, np.int64).tolist() if key in self._labels]
        names, labels = np.asarray(keys, np.int64).tolist(), np.asarray(y, np.int64).tolist()
        inputs = self._checked(np.asarray(x), len(names)) if names else np.empty(0)
        count = len((self._labels.keys() - set(gone)) | set(names))
        limit = self.capacity_bytes
        if names and (count > self.capacity or (limit and count * self._record_size > limit)):
            _log.warning(
                "no room for %d samples beside %d: they are not kept", len(names), len(self)
            )
            return False
        return self._change(gone, dict(zip(names, labels, strict=True)), inputs)

    def retain(self, keys: ArrayLike) -> None:
        """Drop all samples but these, as when a crash came between storing and deciding."""
        wanted = set(np.asarray(keys, np.int64).tolist())
        for key in self.keys.tolist():
            if key not in wanted and not self.swap([key], [], [], []):
                self._drop(key)  # on a full disk: it will come back, and be dropped again

    def read(self, keys: ArrayLike | None = None) -> Samples:
        """Return the samples of these keys, or all, and their labels."""
        wanted = list(self._labels) if keys is None else np.asarray(keys, np.int64).tolist()
        missing = [key for key in wanted if key not in self._labels]
        if missing:
            raise KeyError(f"keys: not stored: {missing[:5]}")
        inputs = np.empty((len(wanted), *(self._shape or ())), dtype=self._dtype)
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
        """Take back what :meth:`state_dict` returned."""
        self._labels, self._inputs, self._shape = {}, {}, None
        if len(state["keys"]):
            self.swap([], state["keys"], state["x"], state["y"])

    @property
    def _record_size(self) -> int:
        size = int(np.prod(self._shape or (), dtype=np.int64)) * self._dtype.itemsize
        return _RECORD.size + size

    def _checked(self, inputs: NDArray[Any], count: int) -> NDArray[Any]:
        """Return the samples if they are like those before; the first ones set the rule."""
        if inputs.ndim == 0 or len(inputs) != count or inputs.dtype.kind not in "fiub":
            kind = f"{inputs.dtype} of shape {inputs.shape}"
            raise ValueError(f"x: expected {count} arrays of numbers, got {kind}")
        if not len(self) or self._shape is None:
            self._adopt(inputs.shape[1:], inputs.dtype)
        if (inputs.shape[1:], inputs.dtype) != (self._shape, self._dtype):
            expected = f"expected {self._dtype} of shape {self._shape}"
            raise ValueError(f"x: {expected}, got {inputs.dtype} of shape {inputs.shape[1:]}")
        return inputs

    def _adopt(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype

    def _change(self, gone: list[int], new: Mapping[int, int], inputs: NDArray[Any]) -> bool:
        for key in gone:
            self._drop(key)
        for row, (key, label) in enumerate(new.items()):
            self._labels[key], self._inputs[key] = label, np.array(inputs[row])
        return True

    def _drop(self, key: int) -> None:
        del self._labels[key]
        self._inputs.pop(key, None)

    def _input(self, key: int) -> NDArray[Any]:
        return self._inputs[key]


class DiskStore(SampleStore):
    """Keeps samples in a file, up to a capacity.

    Parameters
    ----------
    path : Path
        The file; made when there is something to store.
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
    >>> path = Path(folder.name, "samples")
    >>> store = DiskStore(path, "digits", capacity=5)
    >>> store.swap([], [7], np.array([[0.5]]), [1])
    True
    >>> store.close()
    >>> DiskStore(path, "digits", capacity=5).read()
    (array([[0.5]]), array([1]))
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, task: str, capacity: int, capacity_bytes: int = 0) -> None:
        super().__init__(capacity, capacity_bytes)
        self.path, self.task = path, task
        self._offsets: dict[int, int] = {}
        self._file: BinaryIO | None = None
        self._end = self._start = 0  # where the next record goes, where the first one is
        for leftover in path.parent.glob(f".{path.name}.*.tmp"):
            leftover.unlink(missing_ok=True)  # of a log that was being written anew
        if path.exists():
            self._open()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        """Read the log; what follows the last whole record is cut off."""
        self._file = self.path.open("r+b", buffering=0)
        size = os.fstat(self._file.fileno()).st_size
        header = self._header(self._file)
        if header is not None:
            self._shape, self._dtype = tuple(header["shape"]), np.dtype(header["dtype"])
            self._start = self._end = self._file.tell()
            for kind, key, label, offset in self._records(self._file):
                self._note(kind, key, label, offset)
        if self._end < size:
            _log.warning("%s: the last %d bytes are broken: cut off", self.path, size - self._end)
            self._file.truncate(self._end)
        if header is None:
            self.close()
            self.path.unlink()
