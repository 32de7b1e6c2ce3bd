"""The power-norm cosine: the one number with which CosAge summarises an update.

Asgari, Rini, Munari: *CosAge: Federated Learning with Gradient Summaries for Centralized Client
Selection*, eq. 7-9. The paper uses p = 4, which gives dominant entries more weight than p = 2.

As printed, the equations depend on the scale: the inner product (eq. 9) grows with the norm, the
denominator (eq. 8) with its square, so that ``cos(u, u) = 1 / (2 ||u||)`` and a client with large
gradients scores close to 0 whatever their direction. The default form therefore divides each vector
by its p-norm first, and squares the norms of eq. 9 (the polarisation identity). It lies in [-1, 1],
ignores either scale, is 1 for equal and -1 for opposite directions, and the cosine for p = 2.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import one_of

Floats = NDArray[np.float64]

FORMS = ("unit", "printed")
_BLOCK = 16384  # entries of a vector worked on at a time: they stay in the cache
_AT_ONCE = 4 * _BLOCK  # of several vectors


def power_cosine(u: ArrayLike, v: ArrayLike, p: float = 4.0, form: str = "unit") -> Any:
    """Return the similarity of an update, or of the update in each row, to a reference: eq. 8, 9.

    All arithmetic is in float64 on vectors scaled by their largest entry, so nothing overflows or
    vanishes. The result is 0 where a vector is zero, and NaN, which selectors read as "unknown",
    where one is not finite: a broken row leaves the others as they are.

    - ``u`` (shape (d,)): the reference: the previous global update.
    - ``v`` (shape (d,) or (n, d)): an update, or one in each row.
    - ``p``: which norm, at least 1.
    - ``form`` ("unit", "printed"): scale-free in [-1, 1], or eq. 8 and 9 as printed (see the top
      of this file).

    >>> power_cosine([1, 2, 3], [[2, 4, 6], [-1, -2, -3], [0, 0, 0]]).tolist()
    [1.0, -1.0, 0.0]
    >>> round(power_cosine([1, 2, 3], [3, 2, 1], p=2), 4)  # the cosine
    0.7143
    """
    reference = Reference(u, p, form)
    return reference.similarities(v) if np.ndim(v) == 2 else reference.similarity(v)


class Reference:
    """An update that many are compared with, prepared once; see :func:`power_cosine`."""

    def __init__(self, u: ArrayLike, p: float = 4.0, form: str = "unit") -> None:
        one_of(FORMS, form=form)
        if not p >= 1:
            raise ValueError(f"p: expected a number from 1 on, got {p!r}")
        vector = _floats(u)
        if vector.ndim != 1:
            raise ValueError(f"u: expected one vector, got shape {vector.shape}")
        self._p, self._score = p, self._unit_form if form == "unit" else self._printed_form
        self._u = vector[None]
        with np.errstate(invalid="ignore", over="ignore"):  # of what is not finite, NaN will come
            self._top = _largest(self._u)
            self._norm = _norm(_blocks(self._u, _BLOCK, self._top), p)
            if form == "unit":
                self._u = self._u / _or_one(self._top)
                self._u /= _or_one(self._norm)

    def similarity(self, v: ArrayLike) -> float:
        """Return the similarity of an update."""
        update = _floats(v)
        if update.shape != (self._u.size,):
            raise ValueError(f"v: expected a vector of length {self._u.size}, got {update.shape}")
        return float(self._of_rows(update[None])[0])

    def similarities(self, updates: ArrayLike) -> Floats:
        """Return the similarity of the update in each row, the same as one by one."""
        rows = _floats(updates)
        if rows.ndim != 2 or rows.shape[1] != self._u.size:
            raise ValueError(f"v: expected vectors of length {self._u.size}, got {rows.shape}")
        at_a_time = max(1, _AT_ONCE // max(1, self._u.size))
        parts = [self._of_rows(rows[i : i + at_a_time]) for i in range(0, len(rows), at_a_time)]
        return np.concatenate([np.empty(0), *parts])

    def _of_rows(self, rows: Floats) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):  # rows that are not finite become NaN
            tops = _largest(rows)
            values = self._score(rows, tops, _BLOCK)
        values[~np.isfinite(self._top + tops)] = np.nan
        return values

    def _unit_form(self, rows: Floats, tops: Floats, width: int) -> Floats:
        """Return (||u+v||^2 - ||u-v||^2) / 4 of vectors of p-norm 1."""
        norms = _norm(_blocks(rows, width, tops), self._p)
        plus, minus = _norms_of_sum_and_difference(
            _blocks(self._u, width), _blocks(rows, width, tops, norms), self._p
        )
        values: Floats = (plus**2 - minus**2) / 4
        return np.minimum(1.0, np.maximum(-1.0, values))  # what rounding may exceed

    def _printed_form(self, rows: Floats, tops: Floats, width: int) -> Floats:
        """Return (||u+v|| - ||u-v||) / (4 ||u|| ||v||), brought to a common scale to be safe."""
        scale = np.maximum(self._top, tops)
        u = np.broadcast_to(self._u, rows.shape)
        plus, minus = _norms_of_sum_and_difference(
            _blocks(u, width, scale), _blocks(rows, width, scale), self._p
        )
        sizes = _or_one(self._norm * _norm(_blocks(rows, width, tops), self._p))
        # scale / (top of u * tops), of which the larger one cancels
        values: Floats = (plus - minus) / 4 / sizes / _or_one(np.minimum(self._top, tops))
        return values


def _blocks(rows: Floats, width: int, *divisors: Floats) -> Iterator[Floats]:
    """Yield this many columns at a time, each row divided by each of its divisors.

    If there are any, in one and the same array, which the receiver may overwrite.
    """
    columns = [_or_one(divisor)[:, None] for divisor in divisors]
    buffer = np.empty((len(rows), min(width, rows.shape[1])))
    for start in range(0, max(1, rows.shape[1]), width):
        block = rows[:, start : start + width]
        for column in columns:
            block = np.divide(block, column, out=buffer[:, : block.shape[1]])
        yield block


def _norms_of_sum_and_difference(
    left: Iterable[Floats], right: Iterable[Floats], p: float
) -> tuple[Floats, Floats]:
    """Return both p-norms of each row; overwrites the blocks on the right."""
    plus = minus = np.zeros(1)
    for a, b in zip(left, right, strict=True):
        minus = _added(minus, b - a, p)
        b += a
        plus = _added(plus, b, p)
    return _root(plus, p), _root(minus, p)


def _norm(blocks: Iterable[Floats], p: float) -> Floats:
    """Return the p-norms of rows whose entries are about 1 at most."""
    total = np.zeros(1)
    for block in blocks:
        total = _added(total, block, p)
    return _root(total, p)


def _added(total: Floats, x: Floats, p: float) -> Floats:
    """Return a sum of |x|^p (or, for infinite p, a largest entry) with more columns; x is lost."""
    if math.isinf(p):
        return np.maximum(total, _largest(x))
    # A square is many times faster than the general power, and clients compute this every round.
    if p in (2, 4):
        x = x if p == 2 else np.square(x, out=x)
        return np.asarray(total + np.vecdot(x, x))
    return np.asarray(total + np.power(np.abs(x, out=x), p, out=x).sum(axis=1))


def _root(total: Floats, p: float) -> Floats:
    return total if math.isinf(p) else np.asarray(total ** (1 / p))


def _floats(x: ArrayLike) -> Floats:
    array = np.asarray(x)
    # Single precision is turned into double block by block.
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def _largest(rows: Floats) -> Floats:
    """Return the largest absolute entry of each row; it is not finite if an entry is not."""
    top = np.maximum(rows.max(axis=1, initial=0), -rows.min(axis=1, initial=0))
    return np.asarray(top, dtype=np.float64)


def _or_one(x: Floats) -> Floats:
    """Return divisors that are never zero: where one is, so is what it divides."""
    return np.asarray(x + (x == 0))
