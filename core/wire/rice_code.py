"""Increasing positions as bytes: the gaps between them, Rice-coded, the width chosen per 256 gaps.

Positions of many sets are coded in one computation, a set in each row: the bytes of each are the
widths of its blocks, the remainder bits plane by plane, and the quotients in unary up to the end.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .envelope import MalformedUpdate

Indices = NDArray[np.int64]
Used = NDArray[np.bool_]  # which places of a row are not there only to fill it up

_BLOCK = 256
_MAX_WIDTH = 31
# The mean gap from which a Rice code of width 1, 2, ... is the best for geometric gaps:
# where theta^(2^(w-1)) = 1/phi with theta = mean / (1 + mean) and phi the golden ratio.
_MEAN_GAP_OF_WIDTH = 1 / np.expm1(np.log((1 + 5**0.5) / 2) / 2.0 ** np.arange(_MAX_WIDTH))


def encode_positions(sets: Sequence[Indices]) -> list[bytes]:
    """Write the increasing positions of each set."""
    counts = np.array([positions.size for positions in sets])
    used = np.arange(counts.max()) < counts[:, None]
    if not used.size:
        return [b""] * len(sets)
    rows = np.zeros(used.shape, dtype=np.int64)
    rows[used] = np.concatenate(sets)
    gaps = (np.diff(rows, axis=1, prepend=-1) - 1) * used
    firsts = np.arange(0, used.shape[1], _BLOCK)
    members = np.clip(counts[:, None] - firsts, 1, _BLOCK)
    means = np.add.reduceat(gaps, firsts, axis=1) / members
    block_widths = np.searchsorted(_MEAN_GAP_OF_WIDTH, means, side="right")
    widths = _of_gaps(block_widths, used)
    columns = _pack_planes(gaps, widths), _pack_unary(gaps >> widths, used)
    blocks = zip(block_widths.astype(np.uint8), (-(-counts // _BLOCK)).tolist(), strict=True)
    first = [row[:number].tobytes() for row, number in blocks]
    return [b"".join(parts) for parts in zip(first, *columns, strict=True)]


def decode_positions(
    coded: Sequence[memoryview], numbers: Sequence[int], limits: Sequence[int]
) -> list[Indices]:
    """Read so many increasing positions below a limit from each, which they fill exactly."""
    lengths, counts = np.array([len(each) for each in coded]), np.array(numbers)
    blocks, below = -(-counts // _BLOCK), np.array(limits)
    # A gap takes a bit or more, none at all no byte; and all are made as long as the longest.
    least = np.where(counts, blocks + -(-counts // 8), 0)
    most = np.where(counts, blocks + 4 * counts + (below + counts) // 8 + 1, 0)
    for row in np.flatnonzero((lengths < least) | (lengths > most) | (counts > below)).tolist():
        told = f"{lengths[row]} bytes cannot code {counts[row]} positions below {below[row]}"
        raise MalformedUpdate(told)
    used = np.arange(counts.max(initial=0)) < counts[:, None]
    if not used.size:
        return [np.empty(0, dtype=np.int64) for _ in coded]
    longest = int(lengths.max())
    joined = b"".join(bytes(each).ljust(longest, b"\0") for each in coded)
    stream = np.frombuffer(joined, dtype=np.uint8).reshape(len(coded), longest)
    widths = _of_gaps(stream[:, : blocks.max()].astype(np.int64), used)
    if widths.max() > _MAX_WIDTH:
        raise MalformedUpdate(f"code width {widths.max()} is above {_MAX_WIDTH}")
    bits, starts = np.unpackbits(stream, axis=1), 8 * blocks
    splits = starts + 8 * -(-widths.sum(axis=1) // 8)
    quotients = _unpack_unary(bits, splits, 8 * lengths, used)
    if np.any(quotients > below[:, None] >> widths):  # so that no sum below overflows
        raise MalformedUpdate(f"a gap between positions is larger than {below.max()}")
    gaps = (quotients << widths) | _unpack_planes(bits, starts, widths)
    positions = (np.cumsum(gaps, axis=1) + np.arange(used.shape[1])) * used
    if np.any(positions >= below[:, None]):
        raise MalformedUpdate(f"position {positions.max()} is not below {below.max()}")
    return [row[:count].copy() for row, count in zip(positions, numbers, strict=True)]


def _of_gaps(block_widths: Indices, used: Used) -> Indices:
    """Return the width of each gap by that of its block."""
    return np.repeat(block_widths, _BLOCK, axis=1)[:, : used.shape[1]] * used


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


def _unpack_planes(bits: NDArray[np.uint8], starts: Indices, widths: Indices) -> Indices:
    planes = range(widths.max())
    remainders = np.zeros_like(widths)
    if planes:
        present = np.concatenate([widths > bit for bit in planes], axis=1)
        ends = (starts + np.count_nonzero(present, axis=1)).tolist()
        digits = np.zeros(present.shape, dtype=np.uint8)
        own = zip(bits, starts.tolist(), ends, strict=True)
        digits[present] = np.concatenate([row[start:end] for row, start, end in own])
        for bit, plane in zip(planes, np.split(digits, len(planes), axis=1), strict=True):
            remainders |= plane.astype(np.int64) << bit
    return remainders


def _pack_unary(quotients: Indices, used: Used) -> list[bytes]:
    """Write each quotient as that many zeros and a one."""
    ones = (np.cumsum(quotients, axis=1) + np.arange(1, 1 + quotients.shape[1])) * used
    lengths = ones.max(axis=1)
    bits = np.zeros((len(ones), lengths.max()), dtype=np.uint8)
    ones += lengths.max() * np.arange(len(ones))[:, None]
    bits.reshape(-1)[ones[used] - 1] = 1  # a view; an index per axis would take twice the time
    return _packed(bits, lengths)


def _packed(bits: NDArray[np.uint8], lengths: Indices) -> list[bytes]:
    """Return the first bits of each row as bytes, filled up by zeros."""
    rows = np.packbits(bits, axis=1)
    return [row[: -(-k // 8)].tobytes() for row, k in zip(rows, lengths.tolist(), strict=True)]


def _unpack_unary(bits: NDArray[np.uint8], starts: Indices, ends: Indices, used: Used) -> Indices:
    """Read the quotients of each row between two places; zeros follow the second one."""
    marked = bits.astype(bool)
    for row, start in zip(marked, starts.tolist(), strict=True):
        row[:start] = False
    if np.array_equal(np.count_nonzero(marked, axis=1), np.count_nonzero(used, axis=1)):
        ones = np.zeros(used.shape, dtype=np.int64)
        ones[used] = np.flatnonzero(marked)
        ones -= bits.shape[1] * np.arange(len(bits))[:, None]
        if np.all(ends - ones.max(axis=1, where=used, initial=0) <= 8):
            return (np.diff(ones, axis=1, prepend=starts[:, None] - 1) - 1) * used
    raise MalformedUpdate("the code of gaps is cut short or followed by other bytes")
