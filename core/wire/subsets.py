"""Index sets as bytes: k positions out of ``size`` in close to log2 C(size, k) bits.

A set is written as the shortest list of positions: its members, what is absent, or the edges of its
runs. The gaps between positions are Rice-coded (:mod:`core.wire.rice_code`).

A message, little-endian throughout, is ::

    header      magic FRGR, version (u8), content (u8, see Content), size (u32), k (u32)
    values      k values; none in a bare index set
    index part  form (u8, see Form), number of coded positions (u32), width per block (u8),
                remainder bits plane by plane, quotients in unary up to the end
    checksum    CRC-32 of all that precedes

The checksum notices accidents; a forged message may carry a valid one. So everything is checked
again, and memory stays in proportion to the bytes present or to a size that the caller named.
"""

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .rice_code import Indices as Indices
from .rice_code import MalformedUpdate as MalformedUpdate
from .rice_code import decode_positions, encode_positions

MAX_SIZE = 2**31 - 1  # positions that a set may be drawn from
_MAGIC = b"FRGR"
_VERSION = 1
_HEADER = struct.Struct("<4sBBII")
_CHECKSUM = struct.Struct("<I")
_FORM = struct.Struct("<BI")


class Content(IntEnum):
    """What a message holds besides its index set."""

    INDICES = 0
    FLOAT32 = 1
    FLOAT16 = 2


class Form(IntEnum):
    """Which positions stand for the set."""

    MEMBERS = 0
    ABSENT = 1
    EDGES = 2


class Message(NamedTuple):
    """An opened message whose checksum and header hold; the body is not judged yet."""

    content: int
    size: int
    k: int
    body: memoryview


def encode_subset(indices: NDArray[np.integer[Any]], size: int) -> bytes:
    """Encode a strictly increasing array of indices below ``size``.

    Examples
    --------
    >>> data = encode_subset(np.array([2, 3, 7]), size=10)
    >>> decode_subset(data, size=10)
    array([2, 3, 7])
    """
    checked = _checked_indices(indices, size)
    return seal(Content.INDICES, size, checked.size, pack_indices(checked, size))


def decode_subset(data: bytes, size: int) -> Indices:
    """Decode the set that :func:`encode_subset` wrote, as increasing int64 indices.

    Bytes that are not an index set out of ``size`` raise :class:`MalformedUpdate`. The size is
    not optional: a full set is a few bytes long, and what it grows to is for the reader to say.
    """
    message = open_message(data, size)
    if message.content != Content.INDICES:
        raise MalformedUpdate(f"expected a bare index set, got content {message.content}")
    return unpack_indices(message.body, message.size, message.k)


def seal(content: Content, size: int, k: int, *parts: bytes) -> bytes:
    """Join header, parts and checksum into one message."""
    message = b"".join((_HEADER.pack(_MAGIC, _VERSION, content, size, k), *parts))
    return message + _CHECKSUM.pack(zlib.crc32(message))


def open_message(data: bytes, size: int | None = None) -> Message:
    """Check checksum and header, and the message's size against ``size`` where one is given."""
    view = memoryview(data)
    if len(view) < _HEADER.size + _CHECKSUM.size:
        raise MalformedUpdate(f"{len(view)} bytes are too few for a message")
    magic, version, content, found, k = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise MalformedUpdate(f"starts with {magic!r}, not with {_MAGIC!r}")
    if version != _VERSION:
        raise MalformedUpdate(f"version {version} is not known; this reader knows {_VERSION}")
    sealed = view[: -_CHECKSUM.size]
    if _CHECKSUM.pack(zlib.crc32(sealed)) != view[-_CHECKSUM.size :]:
        raise MalformedUpdate("checksum does not match: the message is damaged or cut short")
    if size is not None and found != size:
        raise MalformedUpdate(f"message is for size {found}, expected {size}")
    if not k <= found <= MAX_SIZE:
        raise MalformedUpdate(f"k={k} of size={found}: must hold k <= size <= {MAX_SIZE}")
    return Message(content, found, k, sealed[_HEADER.size :])


def pack_indices(indices: Indices, size: int) -> bytes:
    """Write the index part for valid, strictly increasing ``indices``."""
    return pack_index_rows(indices[None], size)[0]


def pack_index_rows(rows: Indices, size: int) -> list[bytes]:
    """Write the index parts of many sets of as many indices, one in each row."""
    k = rows.shape[1]
    edges = 2 * ((np.diff(rows, axis=1) != 1).sum(axis=1) + bool(k)) < min(k, size - k)
    form = Form.MEMBERS if k <= size - k else Form.ABSENT
    others = rows[~edges]
    positions = others if form == Form.MEMBERS else _complements(others, size)
    header = _FORM.pack(form, min(k, size - k))
    coded, by_edges = iter(encode_positions(positions)), iter(_edge_parts(rows[edges]))
    return [next(by_edges) if edge else header + next(coded) for edge in edges.tolist()]


def _edge_parts(rows: Indices) -> list[bytes]:
    """Write index parts by the edges of their runs; those of as many edges together."""
    found: dict[int, bytes] = {}
    alike: dict[int, list[int]] = {}
    edges = [_edges(row) for row in rows]
    for number, own in enumerate(edges):
        alike.setdefault(own.size, []).append(number)
    for count, numbers in alike.items():
        header = _FORM.pack(Form.EDGES, count)
        coded = encode_positions(np.stack([edges[number] for number in numbers]))
        found |= {number: header + body for number, body in zip(numbers, coded, strict=True)}
    return [found[number] for number in range(len(rows))]


def unpack_indices(part: memoryview, size: int, k: int) -> Indices:
    """Read an index part of ``k`` indices below ``size``; the result takes memory for k."""
    (indices,) = unpack_index_rows([part], size, k)
    return indices


def unpack_index_rows(parts: Sequence[memoryview], size: int, k: int) -> list[Indices]:
    """Read the index parts of many sets of ``k`` indices below ``size``."""
    found: dict[int, Indices] = {}
    usual: dict[int, list[int]] = {Form.MEMBERS: [], Form.ABSENT: []}
    edged: dict[int, list[int]] = {}  # by how many edges
    for number, part in enumerate(parts):
        if len(part) < _FORM.size:
            raise MalformedUpdate("the index part is missing")
        form, count = _FORM.unpack_from(part)
        if form == Form.EDGES:
            edged.setdefault(count, []).append(number)
        elif (form, count) in ((Form.MEMBERS, k), (Form.ABSENT, size - k)):
            usual[form].append(number)
        else:
            raise MalformedUpdate(f"form {form} of {count} positions is no set of {k} from {size}")
    for count, numbers in edged.items():
        coded = [parts[number][_FORM.size :] for number in numbers]
        for number, edges in zip(numbers, decode_positions(coded, count, size + 1), strict=True):
            found[number] = _fill_runs(edges, k)
    for form, numbers in usual.items():
        if numbers:
            count = k if form == Form.MEMBERS else size - k
            coded = [parts[number][_FORM.size :] for number in numbers]
            positions = decode_positions(coded, count, size)
            rows = positions if form == Form.MEMBERS else _complements(positions, size)
            found |= zip(numbers, rows, strict=True)
    return [found[number] for number in range(len(parts))]


def _checked_indices(indices: NDArray[np.integer[Any]], size: int) -> Indices:
    array = np.asarray(indices)
    if not 0 <= size <= MAX_SIZE:
        raise ValueError(f"size must be in 0..{MAX_SIZE}, got {size}")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"indices must be 1-D integers, got {array.dtype} of {array.shape}")
    if array.size and (array[0] < 0 or array[-1] >= size):
        raise ValueError(f"indices must be in 0..{size - 1}, got {array[0]}..{array[-1]}")
    if not np.all(array[1:] > array[:-1]):
        raise ValueError("indices must be strictly increasing")
    return array.astype(np.int64)


def _complements(rows: Indices, size: int) -> Indices:
    other = np.ones((len(rows), size), dtype=bool)
    other[np.arange(len(rows))[:, None], rows] = False
    return np.nonzero(other)[1].reshape(len(rows), size - rows.shape[1])


def _edges(indices: Indices) -> Indices:
    """Return starts and (exclusive) ends of the runs of consecutive indices, alternating."""
    last_of_run = np.flatnonzero(np.diff(indices, append=indices[-1] + 2) != 1)
    first_of_run = np.concatenate(([0], last_of_run[:-1] + 1))
    return np.column_stack((indices[first_of_run], indices[last_of_run] + 1)).ravel()


def _fill_runs(edges: Indices, k: int) -> Indices:
    if edges.size % 2:
        raise MalformedUpdate("a run of indices has a start but no end")
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if lengths.sum() != k:  # before anything of that length is made
        raise MalformedUpdate(f"runs hold {lengths.sum()} indices where {k} belong")
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(k)
