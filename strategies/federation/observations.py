"""What the server learns of clients from their replies, for rules that choose clients.

A rule names what it needs (``ClientSelector.needs``); each name has a reader here, which takes a
table of replies and returns a column: the value of each row, None where it does not say; and the
rows that make no sense, with the reason.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord

from ...core.wire.keys import (
    HISTOGRAM,
    LOSS,
    NUM_EXAMPLES,
    SECONDS,
    SIGNATURE,
    SIMILARITY,
    SUPPORT,
    TRAIN_LOSS,
    UTILITY,
)
from ...core.wire.replies import Replies
from ...core.wire.supports import MalformedSupport, decode_signature

Column = tuple[list[Any], dict[int, str]]
Reader = Callable[[Replies], Column]

_ABSURD = 1e12  # samples of one label: sums of such counts still are numbers
# What clients can be asked before they are chosen; the rest is known from training replies only.
ASKED = (SIMILARITY, LOSS, HISTOGRAM)
# What an honest client can answer; the printed form of the similarity has no bound.
_RANGES = {SIMILARITY: (-1.0 - 1e-6, 1.0 + 1e-6), LOSS: (0.0, math.inf)}


def _floats(name: str) -> Reader:
    """Return a reader of a metric that is a float of at least 0, where a row has it."""

    def read(replies: Replies) -> Column:
        values = replies.metrics.get(name, [None] * len(replies))
        return [v if isinstance(v, float) and v >= 0 else None for v in values], {}

    return read


def _utility(replies: Replies) -> Column:
    """Take Oort's statistical utility, |B| sqrt(mean loss^2), out of replies.

    A client that does not report it is worth nothing: if unknown, it would be explored forever.
    """
    column = replies.take_metric(UTILITY) or [None] * len(replies)
    values = [0.0 if value is None else value for value in column]
    wrong = {
        row: f"{UTILITY} = {value!r} is not a finite number of 0 or more"
        for row, value in enumerate(values)
        if not isinstance(value, int | float) or not 0 <= value < math.inf
    }
    return [None if row in wrong else float(value) for row, value in enumerate(values)], wrong


def _num_examples(replies: Replies) -> Column:
    counts = replies.metrics.get(NUM_EXAMPLES, [None] * len(replies))
    return [float(count) if isinstance(count, int | float) else None for count in counts], {}


def _signatures(hashes: int) -> Reader:
    """Return a reader of the signatures of supports, of this many hashes if that is known.

    A client that nothing matters to has none.
    """

    def read(replies: Replies) -> Column:
        values: list[Any] = []
        wrong: dict[int, str] = {}
        for row, record in enumerate(replies.records.get(SUPPORT, [None] * len(replies))):
            payload = record.get(SIGNATURE) if type(record) is ConfigRecord else None
            values.append(None)
            if type(record) is not ConfigRecord:
                continue
            try:
                found = decode_signature(payload if isinstance(payload, bytes) else b"").signature
            except MalformedSupport as error:
                wrong[row] = f"no signature that can be compared: {error}"
                continue
            if hashes and len(found) != hashes:
                wrong[row] = f"a signature of {len(found)} hashes instead of {hashes}"
            else:
                values[-1] = [int(value) for value in found]
        return values, wrong

    return read


def answered(wants: str, bounded: bool = True, labels: int = 0) -> Reader:
    """Return a reader of the answers to a question.

    ``bounded`` similarities lie in [-1, 1]; a histogram is of that many ``labels``, if they are
    known: else the first answer, right or wrong, would decide for all others.
    """
    low, high = _RANGES.get(wants, (0.0, _ABSURD))
    unbounded = wants == SIMILARITY and not bounded

    def fault(value: Any) -> str:
        if wants == HISTOGRAM:
            if not isinstance(value, list) or not all(0 <= v <= _ABSURD for v in value):
                return f"{wants} is not a list of counts"
            wrong_size = bool(labels) and len(value) != labels
            return f"{wants} of {len(value)} labels instead of {labels}" if wrong_size else ""
        if not isinstance(value, int | float) or not math.isfinite(value):
            return f"{wants} = {value!r} is not a finite number"
        if not unbounded and not low <= value <= high:
            return f"{wants} = {value!r} is not between {low:.3g} and {high:.3g}"
        return ""

    def read(replies: Replies) -> Column:
        values = replies.metrics.get(wants, [None] * len(replies))
        if wants != HISTOGRAM and all(type(value) is float for value in values):
            numbers = np.array(values)
            if np.isfinite(numbers).all() and (
                unbounded or ((numbers >= low) & (numbers <= high)).all()
            ):
                return values, {}
        wrong = {row: why for row, value in enumerate(values) if (why := fault(value))}
        return [
            None if row in wrong else value if wants == HISTOGRAM else float(value)
            for row, value in enumerate(values)
        ], wrong

    return read


def _ridden_similarity(bounded: bool) -> Reader:
    """Return a reader of similarities that ride on training replies, and are taken out of them."""
    read = answered(SIMILARITY, bounded)

    def take(replies: Replies) -> Column:
        values, wrong = read(replies)
        told = replies.take_metric(SIMILARITY) or [None] * len(replies)
        return values, {row: why for row, why in wrong.items() if told[row] is not None}

    return take


def readers(needs: frozenset[str], bounded: bool = True, hashes: int = 0) -> dict[str, Reader]:
    """Return how each of these observations is read from training replies, where it can be."""
    known: dict[str, Reader] = {
        LOSS: _floats(TRAIN_LOSS),
        UTILITY: _utility,
        SECONDS: _floats(SECONDS),
        NUM_EXAMPLES: _num_examples,
        SIGNATURE: _signatures(hashes),
        SIMILARITY: _ridden_similarity(bounded),
    }
    return {name: known[name] for name in sorted(needs) if name in known}
