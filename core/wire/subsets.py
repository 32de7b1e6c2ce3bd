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
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .envelope import Envelope
from .envelope import MalformedUpdate as MalformedUpdate
from .rice_code import Indices as Indices
from .rice_code import decode_positions, encode_positions

MAX_SIZE = 2**31 - 1  # positions that a set may be drawn from
_NUMBERS_AT_ONCE = 2**22  # that sets are drawn from which are coded together
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
    checked = checked_indices(indices, size)
    return seal(Content.INDICES, size, checked.size, *pack_index_sets([checked], size))


def decode_subset(data: bytes, size: int) -> Indices:
    """Decode the set that :func:`encode_subset` wrote, as increasing int64 indices.

    Other bytes raise :class:`MalformedUpdate`. A full set is short: the reader must name its size.
    """
    message = open_message(data, size)
    if message.content != Content.INDICES:
        raise MalformedUpdate(f"expected a bare index set, got content {message.content}")
    return unpack_index_sets([message.body], message.size, [message.k])[0]


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


def in_parts(count: int, size: int) -> Iterator[slice]:
    """Yield so many sets or updates in parts that are coded together, as memory allows."""
    step = max(1, _NUMBERS_AT_ONCE // max(1, size))
    return (slice(start, start + step) for start in range(0, count, step))


def pack_index_sets(sets: Sequence[Indices], size: int) -> list[bytes]:
    """Write the index parts of many sets of increasing indices."""
    forms, written = list[Form](), list[Indices]()
    edges, ends = _edges(sets)
    for indices, (start, end) in zip(sets, pairwise([0, *ends]), strict=True):
        k = indices.size
        if end - start < min(k, size - k):
            form, positions = Form.EDGES, edges[start:end]
        elif k <= size - k:
            form, positions = Form.MEMBERS, indices
        else:
            form, positions = Form.ABSENT, _complement(indices, size)
        forms.append(form)
        written.append(positions)
    coded = zip(forms, written, encode_positions(written), strict=True)
    return [_FORM.pack(form, positions.size) + body for form, positions, body in coded]


def unpack_index_sets(
    parts: Sequence[memoryview], size: int, numbers: Sequence[int]
) -> list[Indices]:
    """Read the index parts of sets of so many indices below ``size``; takes memory for these."""
    if any(len(part) < _FORM.size for part in parts):
        raise MalformedUpdate("the index part is missing")
    headers = [_FORM.unpack_from(part) for part in parts]
    for (form, count), k in zip(headers, numbers, strict=True):
        fits = form == Form.EDGES and count <= min(k, size - k)
        if not fits and (form, count) not in ((Form.MEMBERS, k), (Form.ABSENT, size - k)):
            raise MalformedUpdate(f"form {form} of {count} positions is no set of {k} from {size}")
    coded = [part[_FORM.size :] for part in parts]
    limits = [size + (form == Form.EDGES) for form, _ in headers]
    found = decode_positions(coded, [count for _, count in headers], limits)
    for row, ((form, _), k) in enumerate(zip(headers, numbers, strict=True)):
        if form == Form.EDGES:
            found[row] = _fill_runs(found[row], k)
        elif form == Form.ABSENT:
            found[row] = _complement(found[row], size)
    return found


def checked_indices(indices: NDArray[np.integer[Any]], size: int) -> Indices:
    """Return increasing whole numbers below ``size`` as int64; ValueError for anything else."""
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
    other = np.ones(size, dtype=bool)
    other[indices] = False
    return np.flatnonzero(other)


def _edges(sets: Sequence[Indices]) -> tuple[Indices, list[int]]:
    """Return starts and (exclusive) ends of runs of indices, and where those of each set end."""
    joined, ends = np.concatenate(sets), np.cumsum([indices.size for indices in sets])
    is_last = np.diff(joined, append=-1) != 1
    is_last[ends[ends > 0] - 1] = True
    last = np.flatnonzero(is_last)
    first = np.append(0, last + 1)[: last.size]
    edges = np.column_stack((joined[first], joined[last] + 1)).ravel()
    return edges, (2 * np.searchsorted(last, ends)).tolist()


def _fill_runs(edges: Indices, k: int) -> Indices:
    if edges.size % 2:
        raise MalformedUpdate("a run of indices has a start but no end")
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if lengths.sum() != k:  # before anything of that length is made
        raise MalformedUpdate(f"runs hold {lengths.sum()} indices where {k} belong")
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(k)
