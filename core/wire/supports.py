"""Supports as bytes: which parameters of which model matter most to a client.

A support goes in the smallest of three encodings, and the message names the one it took. A message,
little-endian throughout, is ::

    header      magic FRGS, version (u8), encoding (u8, see Encoding), model tag (u32),
                number of parameters M (u32), number of indices K (u32)
    body        one bit per parameter; or the gaps between indices, 7 bits per byte, the last byte
                of a gap below 128; or the index part of core.wire.subsets, near log2 C(M, K) bits
    checksum    CRC-32 of all that precedes

A signed support starts with FRGP instead, and between body and checksum has one bit per index: 1
where the parameter grew, 0 where it fell; the last byte is filled up with zeros.

The checksum notices accidents; a forged message may carry a valid one. The reader names the model,
so nothing larger than its number of parameters is ever made.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .subsets import (
    MAX_SIZE,
    Indices,
    MalformedUpdate,
    pack_index_rows,
    unpack_index_rows,
    unpack_indices,
)

_MAGIC = b"FRGS"
_SIGNED_MAGIC = b"FRGP"
_VERSION = 1
_HEADER = struct.Struct("<4sBBIII")
_CHECKSUM = struct.Struct("<I")

Signs = NDArray[np.int8]


class MalformedSupport(MalformedUpdate):
    """Bytes that are not a support: damaged, truncated, forged or of another kind."""


class OtherModel(MalformedSupport):
    """A support of another model, or version of it: its indices mean other parameters."""


class Encoding(IntEnum):
    """How the indices are written; of equally small ones, the first is taken."""

    BITMAP = 0
    GAPS = 1
    ENTROPY = 2


class _Opened(NamedTuple):
    """The parts of a message."""

    encoding: int
    tag: int
    size: int
    k: int
    body: memoryview


def model_tag(shapes: Mapping[str, Sequence[int]], version: str = "") -> int:
    """Return the tag of a model: of its parameters' names and shapes in order, and its version.

    >>> layers = {"weight": (10, 4), "bias": (10,)}
    >>> model_tag(layers) == model_tag(dict(layers)), model_tag(layers) == model_tag(layers, "2")
    (True, False)
    """
    described = [f"{name}={tuple(int(side) for side in shape)}" for name, shape in shapes.items()]
    return zlib.crc32("\n".join([*described, version]).encode())


def encode_support(indices: NDArray[np.integer[Any]], size: int, tag: int) -> bytes:
    """Encode a support of a model.

    Parameters
    ----------
    indices : array of int
        One or more, strictly increasing.
    size : int
        Number of parameters of the model; all indices are below it.
    tag : int
        From :func:`model_tag`.

    Examples
    --------
    >>> data = encode_support(np.array([2, 3, 7]), size=10, tag=5)
    >>> decode_support(data, size=10, tag=5)
    array([2, 3, 7])
    """
    return encode_supports([indices], size, tag)[0]


def encode_supports(
    supports: Sequence[NDArray[np.integer[Any]]], size: int, tag: int
) -> list[bytes]:
    """Encode many supports of a model, each as :func:`encode_support` does.

    Those of as many indices are encoded together.
    """
    alike: dict[int, list[int]] = {}
    for number, support in enumerate(supports):
        alike.setdefault(np.size(support), []).append(number)
    found: dict[int, bytes] = {}
    for numbers in alike.values():
        rows = _checked_indices(np.stack([supports[number] for number in numbers]), size)
        found |= zip(numbers, _sealed(_MAGIC, rows, size, tag), strict=True)
    return [found[number] for number in range(len(supports))]


def encode_signed_support(
    indices: NDArray[np.integer[Any]], signs: NDArray[np.integer[Any]], size: int, tag: int
) -> bytes:
    """Encode a support of a model with the sign of the change at each index.

    Parameters
    ----------
    indices, size, tag
        As for :func:`encode_support`.
    signs : array of -1 or 1
        One per index.

    Examples
    --------
    >>> data = encode_signed_support(np.array([2, 3, 7]), np.array([1, -1, 1]), size=10, tag=5)
    >>> decode_signed_support(data, size=10, tag=5)
    (array([2, 3, 7]), array([ 1, -1,  1], dtype=int8))
    """
    checked, directions = _checked_indices(np.asarray(indices)[None], size), np.asarray(signs)
    if directions.shape != checked.shape[1:] or not np.isin(directions, (-1, 1)).all():
        raise ValueError(f"signs: expected -1 or 1 for each of {checked.size} indices")
    bits = np.packbits(directions > 0).tobytes()
    return _sealed(_SIGNED_MAGIC, checked, size, tag, bits)[0]


def _sealed(magic: bytes, rows: Indices, size: int, tag: int, extra: bytes = b"") -> list[bytes]:
    if not 0 <= tag < 2**32:
        raise ValueError(f"tag: expected 0 to {2**32 - 1}, as model_tag returns, got {tag}")
    messages = [
        _HEADER.pack(magic, _VERSION, encoding, tag, size, rows.shape[1]) + body + extra
        for encoding, body in _smallest(rows, size)
    ]
    return [message + _CHECKSUM.pack(zlib.crc32(message)) for message in messages]


def decode_support(data: bytes, size: int, tag: int) -> Indices:
    """Decode a support of the model with ``size`` parameters and this tag, as increasing int64.

    Raises
    ------
    OtherModel
        If the support is of a model with another tag or number of parameters.
    MalformedSupport
        If the bytes are not a support at all.
    """
    return decode_supports([data], size, tag)[0]


def decode_supports(messages: Sequence[bytes], size: int, tag: int) -> list[Indices]:
    """Decode many supports of a model, each as :func:`decode_support` does.

    One that is malformed spoils all: :func:`decode_support` says which.
    """
    opened = [_opened(data, _MAGIC, size, tag) for data in messages]
    found: dict[int, Indices] = {}
    alike: dict[int, list[int]] = {}  # by their number of indices
    for number, own in enumerate(opened):
        if own.encoding == Encoding.ENTROPY:
            alike.setdefault(own.k, []).append(number)
        else:
            found[number] = _unpacked(own, own.body)
    for k, numbers in alike.items():
        try:
            rows = unpack_index_rows([opened[number].body for number in numbers], size, k)
        except MalformedUpdate as error:
            raise MalformedSupport(str(error)) from error
        found |= zip(numbers, rows, strict=True)
    return [found[number] for number in range(len(messages))]


def decode_signed_support(data: bytes, size: int, tag: int) -> tuple[Indices, Signs]:
    """Decode a signed support: increasing indices as int64, and -1 or 1 for each as int8.

    Raises
    ------
    OtherModel
        If the support is of a model with another tag or number of parameters.
    MalformedSupport
        If the bytes are not a signed support at all.
    """
    opened = _opened(data, _SIGNED_MAGIC, size, tag)
    length = -(-opened.k // 8)
    if len(opened.body) <= length:
        raise MalformedSupport(
            f"{len(opened.body)} bytes for indices and signs: the signs alone take {length}"
        )
    indices = _unpacked(opened, opened.body[:-length])
    bits = np.unpackbits(np.frombuffer(opened.body[-length:], dtype=np.uint8))
    if bits[opened.k :].any():
        raise MalformedSupport(f"more signs than the {opened.k} indices")
    return indices, 2 * bits[: opened.k].astype(np.int8) - 1


def _opened(data: bytes, magic: bytes, size: int, tag: int) -> _Opened:
    """Return the parts of a message that is of the model which the reader names."""
    opened = _open(data, magic)
    if (opened.tag, opened.size) != (tag, size):
        raise OtherModel(
            f"support is of model {opened.tag:08x} with {opened.size} parameters, "
            f"expected model {tag:08x} with {size}"
        )
    if not 1 <= opened.k <= size:
        raise MalformedSupport(
            f"support of {opened.k} indices: expected 1 to {size}, the parameters"
        )
    return opened


def _unpacked(opened: _Opened, body: memoryview) -> Indices:
    size, k = opened.size, opened.k
    if opened.encoding == Encoding.BITMAP:
        return _unpack_bitmap(body, size, k)
    if opened.encoding == Encoding.GAPS:
        return _unpack_gaps(body, size, k)
    if opened.encoding == Encoding.ENTROPY:
        try:
            return unpack_indices(body, size, k)
        except MalformedUpdate as error:
            raise MalformedSupport(str(error)) from error
    raise MalformedSupport(f"encoding {opened.encoding} is not known")


def encoding_of(data: bytes) -> Encoding:
    """Return how a valid support without signs is encoded.

    >>> encoding_of(encode_support(np.arange(0, 1000, 2), size=1000, tag=0)).name
    'BITMAP'
    """
    return Encoding(_open(data, _MAGIC).encoding)


def _open(data: bytes, expected: bytes) -> _Opened:
    """Check magic, version and checksum, and return the parts."""
    view = memoryview(data)
    if len(view) < _HEADER.size + _CHECKSUM.size:
        raise MalformedSupport(f"{len(view)} bytes are too few for a support")
    magic, version, encoding, tag, size, k = _HEADER.unpack_from(view)
    if magic != expected:
        raise MalformedSupport(f"starts with {magic!r}, not with {expected!r}")
    if version != _VERSION:
        raise MalformedSupport(f"version {version} is not known; this reader knows {_VERSION}")
    sealed = view[: -_CHECKSUM.size]
    if _CHECKSUM.pack(zlib.crc32(sealed)) != view[-_CHECKSUM.size :]:
        raise MalformedSupport("checksum does not match: the support is damaged or cut short")
    return _Opened(encoding, tag, size, k, sealed[_HEADER.size :])


def _checked_indices(rows: NDArray[np.integer[Any]], size: int) -> Indices:
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"size: expected 1 to {MAX_SIZE} parameters, got {size}")
    if rows.ndim != 2 or rows.size == 0 or rows.dtype.kind not in "iu":
        raise ValueError(
            f"indices: expected one or more whole numbers, got {rows.dtype} of {rows.shape[1:]}"
        )
    if not np.all(rows[:, 1:] > rows[:, :-1]):
        raise ValueError("indices: expected a strictly increasing array")
    least, most = rows[:, 0].min(), rows[:, -1].max()
    if least < 0 or most >= size:
        raise ValueError(f"indices: expected 0 to {size - 1}, got {least} to {most}")
    return rows.astype(np.int64)


def _smallest(rows: Indices, size: int) -> Iterator[tuple[Encoding, bytes]]:
    packed = zip(rows, _pack_gaps(rows), pack_index_rows(rows, size), strict=True)
    for indices, gaps, entropy in packed:
        if -(-size // 8) <= min(len(gaps), len(entropy)):  # known before a bitmap is made
            yield Encoding.BITMAP, _pack_bitmap(indices, size)
        elif len(gaps) <= len(entropy):
            yield Encoding.GAPS, gaps
        else:
            yield Encoding.ENTROPY, entropy


def _pack_bitmap(indices: Indices, size: int) -> bytes:
    bits = np.zeros(size, dtype=np.bool_)
    bits[indices] = True
    return np.packbits(bits).tobytes()


def _unpack_bitmap(body: memoryview, size: int, k: int) -> Indices:
    if len(body) != -(-size // 8):
        raise MalformedSupport(f"bitmap of {len(body)} bytes for {size} parameters")
    indices = np.flatnonzero(np.unpackbits(np.frombuffer(body, dtype=np.uint8)))
    if indices.size != k or indices[-1] >= size:
        raise MalformedSupport(f"bitmap of {indices.size} indices, expected {k} below {size}")
    return indices


def _pack_gaps(rows: Indices) -> list[bytes]:
    gaps = np.diff(rows, axis=1, prepend=-1) - 1
    digits = [gaps]  # of base 128, the lowest first
    while digits[-1].max() >= 128:
        digits.append(digits[-1] >> 7)
    table = np.stack(digits, axis=2)
    present = table > 0
    present[:, :, 0] = True
    more = np.zeros_like(present)
    more[:, :, :-1] = present[:, :, 1:]
    coded = ((table & 127) | more * 128).astype(np.uint8)[present].tobytes()
    ends = np.cumsum(present.sum(axis=(1, 2))).tolist()
    return [coded[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _unpack_gaps(body: memoryview, size: int, k: int) -> Indices:
    stream = np.frombuffer(body, dtype=np.uint8)
    last = np.flatnonzero(stream < 128)
    if last.size != k or last[-1] != stream.size - 1:
        raise MalformedSupport(f"{stream.size} bytes hold {last.size} whole gaps, expected {k}")
    lengths = np.diff(last, prepend=-1)
    if lengths.max() > 5:
        raise MalformedSupport(f"a gap of {lengths.max()} bytes: expected 5 at most")
    place = np.arange(stream.size) - np.repeat(last - lengths + 1, lengths)
    digits = (stream.astype(np.int64) & 127) << (7 * place)
    gaps = np.add.reduceat(digits, last - lengths + 1)
    if gaps.max() >= size:  # so that no sum below overflows
        raise MalformedSupport(f"a gap of {gaps.max()} parameters, expected less than {size}")
    indices = np.cumsum(gaps) + np.arange(k)
    if indices[-1] >= size:
        raise MalformedSupport(f"index {indices[-1]} is not below {size}")
    return indices
