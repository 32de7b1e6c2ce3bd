"""Index sets as bytes: k positions out of ``size`` in close to log2 C(size, k) bits.

A set is written as the shortest list of positions: its members, what is absent, or the edges of its
runs. The gaps between positions are Rice-coded, the width chosen per 256 gaps.

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
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

MAX_SIZE = 2**31 - 1  # positions that a set may be drawn from
_MAGIC = b"FRGR"
_VERSION = 1
_HEADER = struct.Struct("<4sBBII")
_CHECKSUM = struct.Struct("<I")
_FORM = struct.Struct("<BI")
_BLOCK = 256
_MAX_WIDTH = 31
# The mean gap from which a Rice code of width 1, 2, ... is the best for geometric gaps:
# where theta^(2^(w-1)) = 1/phi with theta = mean / (1 + mean) and phi the golden ratio.
_MEAN_GAP_OF_WIDTH = 1 / np.expm1(np.log((1 + 5**0.5) / 2) / 2.0 ** np.arange(_MAX_WIDTH))


class MalformedUpdate(ValueError):
    """Bytes that are not a valid message: damaged, truncated, forged or of another kind."""


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
    coded = iter(_encode_positions(positions))
    return [
        _edge_part(row) if by_edges else header + next(coded)
        for row, by_edges in zip(rows, edges.tolist(), strict=True)
    ]


def _edge_part(indices: Indices) -> bytes:
    edges = _edges(indices)
    return _FORM.pack(Form.EDGES, edges.size) + _encode_positions(edges[None])[0]


def unpack_indices(part: memoryview, size: int, k: int) -> Indices:
    """Read an index part of ``k`` indices below ``size``; the result takes memory for k."""
    if len(part) < _FORM.size:
        raise MalformedUpdate("the index part is missing")
    form, count = _FORM.unpack_from(part)
    coded = part[_FORM.size :]
    if form == Form.EDGES:
        return _fill_runs(_decode_positions(coded, count, size + 1), k)
    if (form, count) not in ((Form.MEMBERS, k), (Form.ABSENT, size - k)):
        raise MalformedUpdate(f"form {form} of {count} positions is no set of {k} from {size}")
    positions = _decode_positions(coded, count, size)
    return positions if form == Form.MEMBERS else _complement(positions, size)


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


def _complement(indices: Indices, size: int) -> Indices:
    return _complements(indices[None], size)[0]


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


def _encode_positions(rows: Indices) -> list[bytes]:
    """Write increasing positions, as many in each row."""
    if rows.size == 0:
        return [b""] * len(rows)
    gaps = np.diff(rows, axis=1, prepend=-1) - 1
    firsts = np.arange(0, gaps.shape[1], _BLOCK)
    members = np.diff(firsts, append=gaps.shape[1])
    means = np.add.reduceat(gaps, firsts, axis=1) / members
    block_widths = np.searchsorted(_MEAN_GAP_OF_WIDTH, means, side="right")
    widths = np.repeat(block_widths, members, axis=1)
    columns = _pack_planes(gaps, widths), _pack_unary(gaps >> widths)
    first = [row.tobytes() for row in block_widths.astype(np.uint8)]
    return [b"".join(parts) for parts in zip(first, *columns, strict=True)]


def _decode_positions(coded: memoryview, count: int, limit: int) -> Indices:
    """Read ``count`` increasing positions below ``limit`` that fill ``coded`` exactly."""
    if count == 0 and len(coded) == 0:
        return np.empty(0, dtype=np.int64)
    blocks = -(-count // _BLOCK)
    if not 0 < count <= min(limit, 8 * (len(coded) - blocks)):  # a gap takes a bit or more
        raise MalformedUpdate(f"{len(coded)} bytes cannot code {count} positions below {limit}")
    stream = np.frombuffer(coded, dtype=np.uint8)
    block_widths, stream = stream[:blocks], stream[blocks:]
    if block_widths.max() > _MAX_WIDTH:
        raise MalformedUpdate(f"code width {block_widths.max()} is above {_MAX_WIDTH}")
    widths = np.repeat(block_widths.astype(np.int64), _BLOCK)[:count]
    split = -(-int(widths.sum()) // 8)
    quotients = _unpack_unary(stream[split:], count)
    if np.any(quotients > limit >> widths):  # so that no sum below overflows
        raise MalformedUpdate(f"a gap between positions is larger than {limit}")
    gaps = (quotients << widths) | _unpack_planes(stream[:split], widths)
    positions = np.cumsum(gaps) + np.arange(count)
    if positions[-1] >= limit:
        raise MalformedUpdate(f"position {positions[-1]} is not below {limit}")
    return positions


def _pack_planes(gaps: Indices, widths: Indices) -> list[bytes]:
    """Write bit 0 of all gaps whose code is that wide, then bit 1, and so on."""
    planes = range(widths.max())
    if not planes:
        return [b""] * len(gaps)
    present = np.concatenate([widths > bit for bit in planes], axis=1)
    digits = np.concatenate([(gaps >> bit).astype(np.uint8) for bit in planes], axis=1)
    bits, lengths = digits[present] & 1, np.count_nonzero(present, axis=1)
    if len(gaps) > 1:
        filled = np.zeros((len(gaps), lengths.max()), dtype=np.uint8)
        filled[np.arange(lengths.max()) < lengths[:, None]] = bits
        bits = filled
    return _packed(bits.reshape(len(gaps), -1), lengths)


def _unpack_planes(stream: NDArray[np.uint8], widths: Indices) -> Indices:
    bits = np.unpackbits(stream)
    remainders = np.zeros(widths.size, dtype=np.int64)
    for bit in range(widths.max()):
        wide = widths > bit
        length = int(np.count_nonzero(wide))
        plane = np.zeros_like(remainders)
        plane[wide], bits = bits[:length], bits[length:]
        remainders |= plane << bit
    return remainders


def _pack_unary(quotients: Indices) -> list[bytes]:
    """Write each quotient as that many zeros and a one."""
    ones = np.cumsum(quotients, axis=1) + np.arange(quotients.shape[1])
    lengths = ones[:, -1] + 1
    bits = np.zeros((len(ones), lengths.max()), dtype=np.uint8)
    ones += lengths.max() * np.arange(len(ones))[:, None]
    bits.reshape(-1)[ones] = 1  # a view; an index per axis would take twice the time
    return _packed(bits, lengths)


def _packed(bits: NDArray[np.uint8], lengths: Indices) -> list[bytes]:
    """Return the first bits of each row as bytes, filled up by zeros."""
    rows = np.packbits(bits, axis=1)
    return [row[: -(-k // 8)].tobytes() for row, k in zip(rows, lengths.tolist(), strict=True)]


def _unpack_unary(stream: NDArray[np.uint8], count: int) -> Indices:
    bits = np.unpackbits(stream).view(bool)
    ones = np.flatnonzero(bits)
    if ones.size != count or bits.size - ones[-1] > 8:
        raise MalformedUpdate(f"the code of {count} gaps is cut short or followed by other bytes")
    return np.diff(ones, prepend=-1) - 1
