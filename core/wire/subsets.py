"""Index sets as bytes: k positions out of ``size`` in close to log2 C(size, k) bits.

A set is written as the shortest list of positions: its members, what is absent, or the edges of its
runs. The gaps between positions are Rice-coded (:mod:`core.wire.rice_code`).

A message (:mod:`core.wire.envelope`), little-endian throughout, is ::

    header      content (u8, see Content), size (u32), k (u32)
    values      k values; none in a bare index set
    index part  form (u8, see Form), number of coded positions (u32), width per block (u8),
                remainder bits plane by plane, quotients in unary up to the end
"""

import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .envelope import Envelope
from .envelope import MalformedUpdate as MalformedUpdate
from .rice_code import Indices as Indices
from .rice_code import decode_positions, encode_positions

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
