"""Top-k sparse updates as bytes: the k entries of largest magnitude, zero elsewhere.

The layout of a message is described in :mod:`forager.core.wire.subsets`, which codes the indices.
"""

import operator
from collections.abc import Sequence
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .envelope import MalformedUpdate as MalformedUpdate
from .rice_code import Indices
from .subsets import (
    MAX_SIZE,
    OVERHEAD,
    Content,
    Message,
    in_parts,
    open_message,
    pack_index_sets,
    seal,
    unpack_index_sets,
)

MAX_UNASKED_SIZE = 2**28
"""Largest dense update (1 GiB) that :func:`decode` makes for a caller who named no size."""

Floats = NDArray[np.float32]

_CONTENT_OF = {"float32": Content.FLOAT32, "float16": Content.FLOAT16}
_DTYPE_OF: dict[int, np.dtype[Any]] = {
    Content.FLOAT32: np.dtype("<f4"),
    Content.FLOAT16: np.dtype("<f2"),
}
_SIGN_CLEARED = np.uint32(0x7FFFFFFF)
_NAN = np.uint32(0x7F800001)


def num_kept(density: float, size: int) -> int:
    """Return how many entries of an update a share of them is."""
    return max(1, round(density * size))


def most_bytes(size: int, k: int, values: str = "float32") -> int:
    """Return an upper bound on the length of a message, wherever the largest entries are."""
    coded, width = min(k, size - k), _DTYPE_OF[_CONTENT_OF[values]].itemsize
    bits = coded * (log2(size / coded) + 3.1) if coded else 0
    # A byte for each block of positions, and two strings of bits that end in whole bytes
    return OVERHEAD + k * width + ceil(bits / 8 + coded / 256 + 3)


def encode(update: ArrayLike, k: int, values: str = "float32") -> bytes:
    """Encode the ``k`` entries of largest magnitude of a flat update, as "float32" or "float16".

    Ties go to the lowest index. NaN ranks above infinity, so that a broken update reaches the
    server as one. ValueError if a kept finite value does not fit the type of values.
    """
    array = np.asarray(update)
    if array.ndim != 1:
        raise ValueError(
            f"update must be a 1-D float array, got {array.dtype} of shape {array.shape}"
        )
    return encode_rows(array[None], k, values)[0]


def encode_rows(
    updates: NDArray[Any], k: int, values: str = "float32", rest: Floats | None = None
) -> list[bytes]:
    """Encode the rows of a matrix, each as :func:`encode`; subtract what they say from ``rest``."""
    if values not in _CONTENT_OF:
        raise ValueError(f"values must be one of {sorted(_CONTENT_OF)}, got {values!r}")
    content, rows = _CONTENT_OF[values], _checked_updates(updates)
    size, count = rows.shape[1], _checked_k(k, rows.shape[1])
    messages: list[bytes] = []
    for at in in_parts(len(rows), size):
        part = rows[at]
        indices = _top_k(part, count)
        places = np.arange(len(part))[:, None], indices
        kept = _cast(part[places], _DTYPE_OF[content])
        if rest is not None:
            rest[at][places] -= kept
        pairs = zip(kept, pack_index_sets(list(indices), size), strict=True)
        messages += [seal(content, size, count, own.tobytes(), packed) for own, packed in pairs]
    return messages


def decode(data: bytes, size: int | None = None) -> Floats:
    """Decode a message to a dense float32 update with zeros where nothing was kept.

    :class:`MalformedUpdate`, before anything large is made, unless it is one of that ``size``;
    without a size, of at most :data:`MAX_UNASKED_SIZE`. Values that are not finite are handed on.
    """
    message = open_message(data, size)
    if size is None and message.size > MAX_UNASKED_SIZE:
        raise MalformedUpdate(
            f"message is for size {message.size}; above {MAX_UNASKED_SIZE} pass the expected size"
        )
    (indices,), (values,) = _read_pairs([message])
    dense = np.zeros(message.size, dtype=np.float32)
    dense[indices] = values
    return dense


def decode_rows(messages: Sequence[bytes], size: int) -> Floats:
    """Decode messages to the rows of a matrix; one that is malformed spoils all."""
    dense = np.zeros((len(messages), size), dtype=np.float32)
    for at in in_parts(len(messages), size):
        opened = [open_message(data, size) for data in messages[at]]
        for row, own, values in zip(dense[at], *_read_pairs(opened), strict=True):
            row[own] = values
    return dense


def decode_pairs(data: bytes, size: int | None = None) -> tuple[int, Indices, Floats]:
    """Decode a message to size, increasing indices and values, in memory for the message alone."""
    message = open_message(data, size)
    (indices,), (values,) = _read_pairs([message])
    return message.size, indices, values


def steepness(data: bytes) -> float:
    """Return the root mean square of a message's values in units of the smallest; 1: all equal."""
    values = np.abs(decode_pairs(data)[2].astype(np.float64))
    least = float(values.min(initial=np.inf))
    return float(np.sqrt(np.mean(values**2))) / least if 0 < least < np.inf else np.inf


def _top_k(rows: Floats, k: int) -> Indices:
    """Return the increasing indices of each row's ``k`` entries of largest magnitude."""
    count, size = rows.shape
    if k == 0:
        return np.empty((count, 0), dtype=np.int64)
    # Read as integers, magnitudes keep their order, NaN is on top and partition is faster.
    magnitude = rows.view(np.uint32) & _SIGN_CLEARED
    np.minimum(magnitude, _NAN, out=magnitude)
    threshold = np.partition(magnitude, size - k, axis=1)[:, size - k, None]
    kept = magnitude >= threshold
    surplus = np.count_nonzero(kept, axis=1) - k
    tied = np.flatnonzero(surplus)
    if tied.size:  # the last of those at the threshold go
        ties = magnitude[tied] == threshold[tied]
        rank = np.cumsum(ties, axis=1)
        kept[tied] &= ~ties | (rank <= rank[:, -1:] - surplus[tied, None])
    places: Indices = np.flatnonzero(kept).reshape(count, k)
    places -= size * np.arange(count)[:, None]
    return places


def _checked_updates(updates: NDArray[Any]) -> Floats:
    if updates.ndim != 2 or updates.dtype.kind != "f":
        raise ValueError(
            f"update must be a 1-D float array, got {updates.dtype} of shape {updates.shape[1:]}"
        )
    if updates.shape[1] > MAX_SIZE:
        raise ValueError(f"update must have at most {MAX_SIZE} entries, got {updates.shape[1]}")
    return np.ascontiguousarray(_cast(updates, np.dtype(np.float32)))


def _checked_k(k: int, size: int) -> int:
    try:
        count = operator.index(k)
    except TypeError:
        raise ValueError(f"k must be an integer, got {k!r}") from None
    if not 0 <= count <= size:
        raise ValueError(f"k must be in 0..{size} (the size of the update), got {count}")
    return count


def _cast(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Cast, refusing to turn a finite value into infinity."""
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)
    overflown = np.isinf(cast) & np.isfinite(values)
    if overflown.any():
        raise ValueError(
            f"value {values[overflown][0]:.3g} of the update does not fit {dtype.name}: training "
            "diverges; lower learning-rate, or set data.scale = 'standard'"
        )
    return cast


def _read_pairs(messages: Sequence[Message]) -> tuple[list[Indices], list[Floats]]:
    """Return indices and values of messages of one size."""
    parts, values = list[memoryview](), list[Floats]()
    for content, _, k, body in messages:
        if content not in _DTYPE_OF:
            raise MalformedUpdate(f"content {content} is not a sparse update")
        dtype = _DTYPE_OF[content]
        length = k * dtype.itemsize
        if length > len(body):
            raise MalformedUpdate(f"{len(body)} bytes cannot hold {k} {dtype} values")
        values.append(np.frombuffer(body[:length], dtype=dtype).astype(np.float32))
        parts.append(body[length:])
    return unpack_index_sets(parts, messages[0].size, [each.k for each in messages]), values
