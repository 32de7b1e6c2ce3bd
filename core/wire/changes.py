"""A model as what has changed in it since another one that the receiver holds.

Where few entries have changed, these and their new values travel; not the differences: ``before +
(after - before)`` is not always ``after`` in floating point, and both sides must hold the same
model bit by bit. Where almost all have, their bits are compressed: see
:mod:`~core.wire.byte_planes`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import dtype_name, flat_floats
from .byte_planes import Arrays, decode_planes, encode_planes
from .subsets import MalformedUpdate, decode_subset, encode_subset

# Entries of a message's CONFIG: what the model is called that the receiver may keep, what the one
# is called that it has changed from, and the change. The first is also the checksum of what comes
# of it. Entry of METRICS in the answer of who lacks that.
TAG = "model-tag"
BASE = "base-tag"
CHANGE = "change"
LACKS_BASE = "lacks-base"


def tag_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a name that only the same arrays have, bit by bit."""
    digest = hashlib.blake2b(digest_size=8)
    for name, array in arrays.items():
        digest.update(f"{name}/{dtype_name(array.dtype)}/{array.shape}/".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def encode_change(
    before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]
) -> list[bytes] | None:
    """Return which entries have changed and their new values.

    None for other names, types or shapes, changed integers, floats not of single precision.
    """
    if not _alike(before, after) or not all(
        new.dtype == np.float32 or (new.dtype.kind != "f" and np.array_equal(before[name], new))
        for name, new in after.items()
    ):
        return None
    old, new = flat_floats(before), flat_floats(after)
    positions = np.flatnonzero(old.view(np.int32) != new.view(np.int32))
    return [encode_subset(positions, new.size), new[positions].astype("<f4").tobytes()]


def encode_shortest(
    before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]
) -> list[bytes] | None:
    """Return a change in the form of fewer bytes; None for other names, types or shapes."""
    if not _alike(before, after):
        return None
    by_entry, by_bit = encode_change(before, after), [encode_planes(before, after)]
    if by_entry is None or sum(map(len, by_entry)) > len(by_bit[0]):
        return by_bit
    return by_entry


def _alike(before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]) -> bool:
    kinds = [[(n, a.dtype, a.shape) for n, a in arrays.items()] for arrays in (before, after)]
    return kinds[0] == kinds[1]


def apply_change(before: Mapping[str, NDArray[Any]], change: Any) -> Arrays:
    """Return the changed arrays."""
    kinds = [type(part) for part in change] if isinstance(change, list) else []
    if kinds == [bytes]:
        return decode_planes(before, change[0])
    if kinds != [bytes, bytes]:
        raise MalformedUpdate("a change is one byte string, or two: positions and values")
    flat = flat_floats(before).copy()
    positions = decode_subset(change[0], flat.size)
    if len(change[1]) != 4 * positions.size:
        raise MalformedUpdate(f"{len(change[1])} bytes are not {positions.size} float32 values")
    flat[positions] = np.frombuffer(change[1], dtype="<f4")
    return _shaped_like(before, flat)


def _shaped_like(before: Mapping[str, NDArray[Any]], flat: NDArray[np.float32]) -> Arrays:
    after, start = dict(before), 0
    for name, array in before.items():
        if array.dtype.kind == "f":
            after[name] = flat[start : start + array.size].reshape(array.shape)
            start += array.size
    return after
