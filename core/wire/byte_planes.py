"""What has changed in a model, where almost every number has: bit by bit, and compressed.

Between two rounds a parameter keeps its sign, its exponent and the first bits of its fraction, so
the bitwise difference (XOR) of its old and new bytes begins with zeros. The first bytes of all
parameters together, then all second ones, and so on (planes) compress well at the one end and not
at all at the other.

It works on bytes and so on arrays of any type, and restores what was sent bit by bit.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .envelope import MalformedUpdate

Arrays = dict[str, NDArray[Any]]
Bytes = NDArray[np.uint8]


def encode_planes(before: Mapping[str, NDArray[Any]], after: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the difference of two models that have the same names, types and shapes."""
    planes = []
    for width in _widths(before):
        difference = _bytes_of(before, width) ^ _bytes_of(after, width)
        planes += [_compressed(plane.tobytes()) for plane in difference.reshape(-1, width).T]
    return b"".join(planes)


def decode_planes(before: Mapping[str, NDArray[Any]], data: bytes) -> Arrays:
    """Return the model that :func:`encode_planes` was given as the second one.

    Other bytes raise :class:`MalformedUpdate`; no more is unpacked than the model is large.
    """
    rest, after = data, dict(before)
    for width in _widths(before):
        old = _bytes_of(before, width)
        difference = np.empty((old.size // width, width), dtype=np.uint8)
        for place in range(width):
            plane, rest = _first_of(rest, len(difference))
            difference[:, place] = np.frombuffer(plane, dtype=np.uint8)
        after |= _shaped_like(before, width, old ^ difference.reshape(-1))
    if rest:
        raise MalformedUpdate(f"{len(rest)} bytes more than the difference of a model")
    return after


def _compressed(plane: bytes) -> bytes:
    # Runs of zeros are all that repeats. To look for more takes longer and leaves more bytes.
    packer = zlib.compressobj(1, strategy=zlib.Z_RLE)
    return packer.compress(plane) + packer.flush()


def _first_of(data: bytes, size: int) -> tuple[bytes, bytes]:
    """Return the first plane, which must be of that size, and the bytes behind it."""
    packer = zlib.decompressobj()
    try:
        plane = packer.decompress(data, size + 1)  # one more shows that there is too much
    except zlib.error as error:
        raise MalformedUpdate(f"not compressed bytes: {error}") from error
    if len(plane) != size or not packer.eof:
        raise MalformedUpdate(f"not {size} bytes, compressed")
    return plane, packer.unused_data


def _widths(arrays: Mapping[str, NDArray[Any]]) -> list[int]:
    return sorted({array.dtype.itemsize for array in arrays.values()})


def _bytes_of(arrays: Mapping[str, NDArray[Any]], width: int) -> Bytes:
    alike = [array for array in arrays.values() if array.dtype.itemsize == width]
    return np.concatenate([np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in alike])


def _shaped_like(before: Mapping[str, NDArray[Any]], width: int, flat: Bytes) -> Arrays:
    after, start = {}, 0
    for name, array in before.items():
        if array.dtype.itemsize == width:
            own = flat[start : start + array.nbytes]
            after[name] = own.view(array.dtype).reshape(array.shape)
            start += array.nbytes
    return after
