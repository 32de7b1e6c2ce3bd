"""Array records that stay numpy until their bytes are needed.

Flower's ``Array`` holds serialised ``.npy`` bytes: between two functions of one process that wastes
two copies and about 100 microseconds. On the wire a ``LiveArray`` becomes a plain ``Array``.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from .records import entries, filled

_NUMPY_STYPE = "numpy.ndarray"

_SCALAR_BYTES = 8  # of a number, in accounts of what is sent


class LiveArray(Array):
    """An ``Array`` around a live ndarray, which must not be changed, serialised on first need."""

    def __init__(self, ndarray: NDArray[Any]) -> None:
        # Not by Array.__setattr__, which invalidates caches that a new object does not have.
        self.__dict__["_live"] = ndarray

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """Name of the dtype."""
        return dtype_name(self.__dict__["_live"].dtype)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of the array."""
        return self.__dict__["_live"].shape  # type: ignore[no-any-return]

    @property
    def stype(self) -> str:  # type: ignore[override]
        """Flower's name for the way the bytes are made."""
        return _NUMPY_STYPE

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The array as ``.npy`` bytes, as Flower sends them."""
        cached = self.__dict__.get("_data")
        if cached is None:
            buffer = BytesIO()
            np.save(buffer, self.__dict__["_live"], allow_pickle=False)
            cached = self.__dict__["_data"] = buffer.getvalue()
        return cached

    def numpy(self) -> NDArray[Any]:
        """Return a writable copy, as ``Array.numpy`` does: some strategies compute in place."""
        return self.__dict__["_live"].copy()  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self.dtype, self.shape, self.stype, self.data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self.dtype, self.shape, self.data) == (other.dtype, other.shape, other.data)

    __hash__ = None  # type: ignore[assignment]


dtype_name = cache(str)  # numpy puts it together each time


# Flower names the class in the header of what it sends: on the wire a LiveArray is an Array.
LiveArray.__qualname__ = Array.__qualname__


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return an ArrayRecord of live arrays."""
    return filled(ArrayRecord, {name: LiveArray(np.asarray(a)) for name, a in arrays.items()})


def view(array: Array) -> NDArray[Any]:
    """Return the array for reading, without a copy where it is live."""
    live = array.__dict__.get("_live")
    return array.numpy() if live is None else live


def checked_view(array: Array, like: NDArray[Any]) -> NDArray[Any]:
    """Return an array that came by wire; ValueError unless it has the shape and dtype of another.

    Its bytes name a shape of their own, which is compared before anything is allocated.
    """
    live = array.__dict__.get("_live")
    if live is not None:
        if live.dtype is not like.dtype or live.shape != like.shape:
            _compare(live.dtype, live.shape, like)
        return live  # type: ignore[no-any-return]
    if array.stype != _NUMPY_STYPE:
        raise ValueError(f"serialised by {array.stype!r}, not {_NUMPY_STYPE!r}")
    _compare(array.dtype, tuple(array.shape), like)
    try:
        return _read_npy(array.data, like)
    except Exception as error:  # numpy parses a stranger's header, and may fail in any way
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _read_npy(data: bytes, like: NDArray[Any]) -> NDArray[Any]:
    buffer = BytesIO(data)
    read_header = _HEADERS.get(np.lib.format.read_magic(buffer))
    if read_header is None:
        raise ValueError("an unknown version of the .npy format")
    shape, fortran, dtype = read_header(buffer)
    _compare(dtype, shape, like)
    values = np.frombuffer(data, dtype=dtype, count=like.size, offset=buffer.tell())
    return values.reshape(shape, order="F" if fortran else "C")


def checked_arrays(record: Any, like: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return a record that came by wire; ValueError unless its arrays are like the others."""
    if type(record) is not ArrayRecord:
        raise ValueError("0 array records instead of one")
    arrays = entries(record)
    if arrays.keys() != like.keys():
        odd = sorted(arrays.keys() ^ like.keys())
        raise ValueError(f"other array names than the model's: {odd[:5]}")
    checked = {}
    for name, array in arrays.items():
        try:
            checked[name] = checked_view(array, like[name])
        except ValueError as error:
            raise ValueError(f"array {name}: {error}") from error
    return checked


def _compare(dtype: Any, shape: tuple[int, ...], like: NDArray[Any]) -> None:
    if shape != like.shape or dtype != (str(like.dtype) if isinstance(dtype, str) else like.dtype):
        raise ValueError(f"{dtype}{list(shape)} instead of {like.dtype}{list(like.shape)}")


def stacked(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return arrays of one shape as the rows of one array; a single one is not copied."""
    return rows[0][None] if len(rows) == 1 else np.stack(rows)


def misfit_of_stack(stack: Mapping[str, NDArray[Any]], like: Mapping[str, NDArray[Any]]) -> str:
    """Return in what the rows of stacked arrays differ from others; nothing if in nothing."""
    if stack.keys() != like.keys():
        return f"other array names than the model's: {sorted(stack.keys() ^ like.keys())[:5]}"
    for name, array in stack.items():
        try:
            _compare(array.dtype, array.shape[1:], like[name])
        except ValueError as error:
            return f"array {name}: {error}"
    return ""


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def from_record(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the arrays of a record, for reading only."""
    return {
        name: array.numpy() if (live := array.__dict__.get("_live")) is None else live
        for name, array in record.__dict__["_data"].items()
    }


def flat_floats(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """Return the float arrays as one vector, in their order; integer buffers are left out."""
    parts = [array.ravel() for array in arrays.values() if array.dtype.kind == "f"]
    return np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32, copy=False)


def num_bytes(array: Array) -> int:
    """Return the bytes of the values alone, the same for live and serialised arrays."""
    if type(array) is LiveArray:
        return array.__dict__["_live"].nbytes  # type: ignore[no-any-return]
    # By what was really sent: a stranger's header may claim anything.
    return max(0, len(array.data) - 10 - int.from_bytes(array.data[8:10], "little"))


def flat_change(
    before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]
) -> NDArray[np.float32]:
    """Return the change of the float arrays as one vector, in their order."""
    return flat_floats({name: after[name] - before[name] for name in before})


def value_bytes(value: object) -> int:
    """Return the bytes of one value: eight for a number, the length of text and byte strings."""
    if type(value) is float or type(value) is int:
        return _SCALAR_BYTES
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):  # all of one type, as Flower's records have them
        plain = not value or type(value[0]) is float or type(value[0]) is int
        return _SCALAR_BYTES * len(value) if plain else sum(map(value_bytes, value))
    return _SCALAR_BYTES


def record_bytes(record: ArrayRecord | ConfigRecord | MetricRecord) -> int:
    """Return the bytes of the values of one record."""
    values = entries(record).values()
    return sum(map(num_bytes if type(record) is ArrayRecord else value_bytes, values))


def sizes_of(content: RecordDict) -> tuple[int, int]:
    """Return the bytes of all values in a message, and those of all names.

    Arrays count their values, texts and byte strings their length, numbers eight bytes: what the
    method itself asks to be sent, without what Flower's transport adds or spares.
    """
    held = entries(content)
    names = sum(len(name) + sum(map(len, entries(record))) for name, record in held.items())
    return sum(map(record_bytes, held.values())), names
