"""Index sets as bytes: k positions out of ``size`` in close to log2 C(size, k) bits.

A set is written as the shortest list of positions: its members, what is absent, or the edges of its
runs. The gaps between positions are Rice-coded.

A message, little-endian throughout, is ::

    header      content (u8, see Content), size (u32), k (u32)
    values      k values; none in a bare index set
    index part  form (u8, see Form), number of coded positions (u32), width per block (u8),
                remainder bits plane by plane, quotients in unary up to the end
"""

import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
_CHECKSUM = struct.Struct("<I")


class MalformedUpdate(ValueError):
    """Bytes that are not a valid message: damaged, truncated, forged or of another kind."""


class Envelope:
    """Messages of one kind: four letters, version (u8), numbers, body, CRC-32; little-endian."""

    def __init__(self, what: str, magic: bytes, version: int, numbers: str) -> None:
        self._what, self._magic, self._version = what, magic, version
        self._header = struct.Struct(f"<4sB{numbers}")

    def seal(self, numbers: tuple[int, ...], *parts: bytes) -> bytes:
        """Join header, the parts of the body, and checksum."""
        message = b"".join((self._header.pack(self._magic, self._version, *numbers), *parts))
        return message + _CHECKSUM.pack(zlib.crc32(message))

    def open(self, data: bytes) -> tuple[tuple[int, ...], memoryview]:
        """Return numbers and body, which are not judged yet."""
        view = memoryview(data)
        if len(view) < self._header.size + _CHECKSUM.size:
            raise MalformedUpdate(f"{len(view)} bytes are too few for a {self._what}")
        magic, version, *numbers = self._header.unpack_from(view)
        if magic != self._magic:
            raise MalformedUpdate(f"starts with {magic!r}, not with {self._magic!r}")
        if version != self._version:
            raise MalformedUpdate(
                f"version {version} is not known; this reader knows {self._version}"
            )
        sealed = view[: -_CHECKSUM.size]
        if _CHECKSUM.pack(zlib.crc32(sealed)) != view[-_CHECKSUM.size :]:
            raise MalformedUpdate(
                f"checksum does not match: the {self._what} is damaged or cut short"
            )
        return tuple(numbers), sealed[self._header.size :]


T = TypeVar("T")

MAX_SIZE = 2**31 - 1  # positions that a set may be drawn from
_ENVELOPE = Envelope("message", b"FRGR", 1, "BII")
_FORM = struct.Struct("<BI")
OVERHEAD = len(_ENVELOPE.seal((0, 0, 0))) + _FORM.size  # bytes besides values and coded positions


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
    """Encode a strictly increasing array of indices below ``size``."""
    checked = _checked_indices(indices, size)
    return seal(Content.INDICES, size, checked.size, *pack_index_rows(checked[None], size))


def decode_subset(data: bytes, size: int) -> Indices:
    """Decode the set that :func:`encode_subset` wrote, as increasing int64 indices.

    Other bytes raise :class:`MalformedUpdate`. A full set is short: the reader must name its size.
    """
    message = open_message(data, size)
    if message.content != Content.INDICES:
        raise MalformedUpdate(f"expected a bare index set, got content {message.content}")
    return unpack_index_rows([message.body], message.size, message.k)[0]


def seal(content: Content, size: int, k: int, *parts: bytes) -> bytes:
    """Join header, parts and checksum into one message."""
    return _ENVELOPE.seal((content, size, k), *parts)


def open_message(data: bytes, size: int | None = None) -> Message:
    """Check checksum and header, and the message's size against ``size`` where one is given."""
    (content, found, k), body = _ENVELOPE.open(data)
    if size is not None and found != size:
        raise MalformedUpdate(f"message is for size {found}, expected {size}")
    if not k <= found <= MAX_SIZE:
        raise MalformedUpdate(f"k={k} of size={found}: must hold k <= size <= {MAX_SIZE}")
    return Message(content, found, k, body)


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
    edges = [_edges(row) for row in rows]

    def written(numbers: list[int]) -> list[bytes]:
        header = _FORM.pack(Form.EDGES, edges[numbers[0]].size)
        coded = encode_positions(np.stack([edges[number] for number in numbers]))
        return [header + body for body in coded]

    return in_groups([own.size for own in edges], written)


def unpack_index_rows(parts: Sequence[memoryview], size: int, k: int) -> list[Indices]:
    """Read the index parts of many sets of ``k`` indices below ``size``; takes memory for k."""
    if any(len(part) < _FORM.size for part in parts):
        raise MalformedUpdate("the index part is missing")
    headers = [_FORM.unpack_from(part) for part in parts]

    def read(numbers: list[int]) -> Iterable[Indices]:
        form, count = headers[numbers[0]]
        coded = [parts[number][_FORM.size :] for number in numbers]
        if form == Form.EDGES:
            return [_fill_runs(edges, k) for edges in decode_positions(coded, count, size + 1)]
        if (form, count) not in ((Form.MEMBERS, k), (Form.ABSENT, size - k)):
            raise MalformedUpdate(f"form {form} of {count} positions is no set of {k} from {size}")
        positions = decode_positions(coded, count, size)
        return positions if form == Form.MEMBERS else _complements(positions, size)

    return in_groups(headers, read)


def in_groups(keys: Sequence[Hashable], work: Callable[[list[int]], Iterable[T]]) -> list[T]:
    """Return what a function finds for the numbers of all entries with one key, by entry."""
    alike: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        alike.setdefault(key, []).append(number)
    found: dict[int, T] = {}
    for numbers in alike.values():
        found |= zip(numbers, work(numbers), strict=True)
    return [found[number] for number in range(len(keys))]


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


_BLOCK = 256
_MAX_WIDTH = 31
# The mean gap from which a Rice code of width 1, 2, ... is the best for geometric gaps:
# where theta^(2^(w-1)) = 1/phi with theta = mean / (1 + mean) and phi the golden ratio.
_MEAN_GAP_OF_WIDTH = 1 / np.expm1(np.log((1 + 5**0.5) / 2) / 2.0 ** np.arange(_MAX_WIDTH))


def encode_positions(rows: Indices) -> list[bytes]:
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


def decode_positions(coded: Sequence[memoryview], count: int, limit: int) -> Indices:
    """Read ``count`` increasing positions below ``limit`` from each, which they fill exactly."""
    lengths = np.array([len(each) for each in coded])
    if count == 0 and not lengths.any():
        return np.empty((len(coded), 0), dtype=np.int64)
    blocks, least = -(-count // _BLOCK), int(lengths.min())
    if not 0 < count <= min(limit, 8 * (least - blocks)):  # a gap takes a bit or more
        raise MalformedUpdate(f"{least} bytes cannot code {count} positions below {limit}")
    longest = int(lengths.max())
    if longest > blocks + 4 * count + (limit + count) // 8 + 1:  # before all are made as long
        raise MalformedUpdate(f"{longest} bytes are too many for {count} positions below {limit}")
    joined = b"".join(bytes(each).ljust(longest, b"\0") for each in coded)
    stream = np.frombuffer(joined, dtype=np.uint8).reshape(len(coded), longest)
    block_widths, bits = stream[:, :blocks], np.unpackbits(stream[:, blocks:], axis=1)
    if block_widths.max() > _MAX_WIDTH:
        raise MalformedUpdate(f"code width {block_widths.max()} is above {_MAX_WIDTH}")
    widths = np.repeat(block_widths.astype(np.int64), _BLOCK, axis=1)[:, :count]
    splits = -(-widths.sum(axis=1) // 8)
    quotients = _unpack_unary(bits, 8 * splits, 8 * (lengths - blocks), count)
    if np.any(quotients > limit >> widths):  # so that no sum below overflows
        raise MalformedUpdate(f"a gap between positions is larger than {limit}")
    gaps = (quotients << widths) | _unpack_planes(bits, widths)
    positions: Indices = np.cumsum(gaps, axis=1) + np.arange(count)
    if positions[:, -1].max() >= limit:
        raise MalformedUpdate(f"position {positions[:, -1].max()} is not below {limit}")
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


def _unpack_planes(bits: NDArray[np.uint8], widths: Indices) -> Indices:
    planes = range(widths.max())
    remainders = np.zeros_like(widths)
    if planes:
        present = np.concatenate([widths > bit for bit in planes], axis=1)
        lengths = np.count_nonzero(present, axis=1)
        digits = np.zeros(present.shape, dtype=np.uint8)
        own = zip(bits, lengths.tolist(), strict=True)
        digits[present] = np.concatenate([row[:length] for row, length in own])
        for bit, plane in zip(planes, np.split(digits, len(planes), axis=1), strict=True):
            remainders |= plane.astype(np.int64) << bit
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


def _unpack_unary(bits: NDArray[np.uint8], starts: Indices, ends: Indices, count: int) -> Indices:
    """Read ``count`` quotients from each row between two places; zeros follow the second one."""
    marked = bits.astype(bool)
    for row, start in zip(marked, starts.tolist(), strict=True):
        row[:start] = False
    found = np.count_nonzero(marked, axis=1)
    ones = np.flatnonzero(marked)
    if (found == count).all():
        ones = ones.reshape(len(bits), count) - bits.shape[1] * np.arange(len(bits))[:, None]
        if (ends - ones[:, -1] <= 8).all():
            quotients: Indices = np.diff(ones, axis=1, prepend=starts[:, None] - 1) - 1
            return quotients
    raise MalformedUpdate(f"the code of {count} gaps is cut short or followed by other bytes")
