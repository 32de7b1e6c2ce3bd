"""Increasing positions as bytes: the gaps between them, Rice-coded, the width chosen per 256 gaps.

Positions of many sets are coded in one computation, a set in each row: the bytes of each are the
widths of its blocks, the remainder bits plane by plane, and the quotients in unary up to the end.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .envelope import MalformedUpdate

Indices = NDArray[np.int64]

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
