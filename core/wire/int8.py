"""Updates as one byte per entry: stochastic rounding on a scale of each array's own.

With the largest magnitude m of an array, an entry x becomes ``q = floor(127 x / m + u)``, u uniform
in [0, 1), and is read as ``q m / 127``: right on average (QSGD: Alistarh et al., 2017). A message
is a checksum, the scales m / 127 as float32 and the bytes q; an array of a single entry is sent as
it is. Both sides know the sizes of the arrays from the model.
"""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .subsets import MalformedUpdate

Floats = NDArray[np.float32]

_LEVELS = 127
_CHECKSUM = 4


def encode(update: Floats, sizes: Sequence[int], rng: np.random.Generator) -> tuple[bytes, Floats]:
    """Return an update as bytes, and what they say."""
    sizes = [size for size in sizes if size]
    starts = np.cumsum([0, *sizes])[:-1]
    largest = np.maximum.reduceat(np.abs(update), starts) if len(sizes) else np.zeros(0)
    scales = np.where(np.equal(sizes, 1), update[starts], largest / _LEVELS).astype("<f4")
    wide = np.repeat(scales, sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.floor(update / wide + rng.random(update.size, np.float32))
    # Values that are not finite have such a scale, which makes them not finite again.
    levels = np.nan_to_num(np.clip(steps, -_LEVELS, _LEVELS)).astype(np.int8)
    body = scales.tobytes() + levels[np.repeat(np.not_equal(sizes, 1), sizes)].tobytes()
    data = zlib.crc32(body).to_bytes(_CHECKSUM, "little") + body
    return data, decode(data, sizes)


def num_bytes(sizes: Sequence[int]) -> int:
    """Return the length of a message for arrays of these sizes."""
    return _CHECKSUM + sum(4 + (size if size > 1 else 0) for size in sizes if size)


def decode(data: bytes, sizes: Sequence[int]) -> Floats:
    """Return the update that bytes stand for; :class:`MalformedUpdate` if they do not."""
    sizes = [size for size in sizes if size]
    body, long = data[_CHECKSUM:], np.not_equal(sizes, 1)
    if len(data) != num_bytes(sizes):
        raise MalformedUpdate(f"{len(data)} bytes where {num_bytes(sizes)} are expected")
    if zlib.crc32(body).to_bytes(_CHECKSUM, "little") != data[:_CHECKSUM]:
        raise MalformedUpdate("the checksum is wrong")
    scales = np.frombuffer(body[: 4 * len(sizes)], "<f4")
    levels = np.ones(int(np.sum(sizes)), np.float32)
    levels[np.repeat(long, sizes)] = np.frombuffer(body[4 * len(sizes) :], np.int8)
    return np.asarray(levels * np.repeat(scales, sizes), dtype=np.float32)
