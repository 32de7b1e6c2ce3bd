"""A model as what has changed in it since another one that the receiver holds.

The new values travel, not the differences: ``before + (after - before)`` is not always ``after`` in
floating point, and both sides must hold the same model bit by bit. The difference, which a
similarity is relative to, comes for free.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import flat_floats
from .subsets import MalformedUpdate, decode_subset, encode_subset

Arrays = dict[str, NDArray[Any]]

# Entries of a query's CONFIG: what the model is called that the receiver may keep, what the one is
# called that it has changed from, and the change. Entry of METRICS in the answer of who lacks that.
TAG = "model-tag"
BASE = "base-tag"
CHANGE = "change"
LACKS_BASE = "lacks-base"


def tag_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a name that only the same arrays have, bit by bit.

    >>> tag_of({"w": np.zeros(2)}) == tag_of({"w": np.zeros(2)}) != tag_of({"w": -np.zeros(2)})
    True
    """
    digest = hashlib.blake2b(digest_size=8)
    for name, array in arrays.items():
        digest.update(f"{name}/{array.dtype}/{array.shape}/".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def encode_change(
    before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]
) -> list[bytes] | None:
    """Return which entries have changed and their new values.

    None if a change cannot say it: other names, types or shapes, changed integers, floats that are
    not of single precision.

    >>> encode_change({"n": np.array(1)}, {"n": np.array(2)}) is None
    True
    """
    if not _comparable(before, after):
        return None
    old, new = flat_floats(before), flat_floats(after)
    positions = np.flatnonzero(old.view(np.int32) != new.view(np.int32))
    return [encode_subset(positions, new.size), new[positions].astype("<f4").tobytes()]


def _comparable(before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]) -> bool:
    if list(before) != list(after):
        return False
    for name, new in after.items():
        old = before[name]
        if (old.dtype, old.shape) != (new.dtype, new.shape):
            return False
        if new.dtype != np.float32 and (new.dtype.kind == "f" or not np.array_equal(old, new)):
            return False
    return True


def apply_change(
    before: Mapping[str, NDArray[Any]], change: Any
) -> tuple[Arrays, NDArray[np.float32]]:
    """Return the changed arrays, and the difference of their floats as one vector.

    >>> before, after = {"w": np.float32([1, 2, 3])}, {"w": np.float32([1, 5, 3])}
    >>> apply_change(before, encode_change(before, after))
    ({'w': array([1., 5., 3.], dtype=float32)}, array([0., 3., 0.], dtype=float32))
    """
    if not isinstance(change, list) or [type(part) for part in change] != [bytes, bytes]:
        raise MalformedUpdate("a change is two byte strings: positions and values")
    flat = flat_floats(before).copy()
    positions = decode_subset(change[0], flat.size)
    if len(change[1]) != 4 * positions.size:
        raise MalformedUpdate(f"{len(change[1])} bytes are not {positions.size} float32 values")
    values = np.frombuffer(change[1], dtype="<f4")
    difference = np.zeros_like(flat)
    difference[positions] = values - flat[positions]
    flat[positions] = values
    return _shaped_like(before, flat), difference


def _shaped_like(before: Mapping[str, NDArray[Any]], flat: NDArray[np.float32]) -> Arrays:
    after, start = dict(before), 0
    for name, array in before.items():
        if array.dtype.kind == "f":
            after[name] = flat[start : start + array.size].reshape(array.shape)
            start += array.size
    return after
