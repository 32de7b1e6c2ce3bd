"""What the server learns of clients from their replies, for rules that choose clients.

A rule names what it needs (``ClientSelector.needs``); each name has a reader here, which takes a
table of replies and returns a column: the value of each row, None where it does not say; and the
rows that make no sense, with the reason.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ...core.wire import sparse
from ...core.wire.arrays import flat_change, flat_floats, from_record
from ...core.wire.changes import (
    BASE,
    CHANGE,
    LACKS_BASE,
    TAG,
    encode_change,
    encode_shortest,
    tag_of,
)
from ...core.wire.keys import (
    ARRAYS,
    CONFIG,
    HISTOGRAM,
    LOSS,
    NUM_EXAMPLES,
    REFERENCE,
    SECONDS,
    SIGNATURE,
    SIMILARITY,
    SUMMARY,
    SUPPORT,
    TRAIN_LOSS,
    UTILITY,
    WANTS,
)
from ...core.wire.replies import Replies
from ...core.wire.supports import MalformedSupport, decode_signature
from .federation import Federation
from .ledger import Arrays

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


@dataclass
class Questions:
    """What clients are asked before they are chosen, how many of them, and what may be true."""

    bounded: bool = True  # a similarity must lie in [-1, 1]
    labels: int = 0  # how many a histogram must be of; 0 if that is not known
    hashes: int = 0  # how many a signature must be of; 0 if that is not known
    ride: bool = False  # clients are not asked: what they said in their last reply counts
    ask_at_most: int = 0  # clients per round, the oldest first; 0 for no limit
    resend: bool = False  # the whole model every time; else clients are to keep the last one
    seed: int = 0  # of sketches of updates
    steps_of: Callable[[float], int] | None = None  # local steps that so many samples make
    _last: dict[str, Arrays] = field(default_factory=dict)  # that of the last question, by its tag

    def ask(
        self,
        federation: Federation,
        grid: Grid,
        nodes: Sequence[int],
        wants: str,
        server_round: int,
        arrays: ArrayRecord,
        reference: Mapping[str, NDArray[Any]] | None,
    ) -> dict[int, Any]:
        """Return the answers by node; those that make no sense are set aside.

        ``wants`` is "similarity", "loss" or "histogram". A similarity is relative to ``reference``,
        the last global update. With a whole model it travels as its non-zero entries: the mean of
        sparse updates is sparse.
        """
        read, asked = answered(wants, self.bounded, self.labels), {WANTS: wants}
        if wants == HISTOGRAM:
            answers = federation.ask(grid, server_round, SUMMARY, nodes, {CONFIG: asked})
            return federation.columns(server_round, answers, read)
        model, held = from_record(arrays), federation.held
        tag = "" if self.resend else tag_of(model)
        whole: dict[str, Any] = asked | ({TAG: tag} if tag else {})
        if reference is not None:
            whole[REFERENCE] = encode_update(reference)
        in_full: dict[str, Any] = {CONFIG: whole, ARRAYS: arrays}
        known = held.models if held.every_message else self._last
        encode = encode_shortest if held.every_message else encode_change
        in_short: dict[str, dict[str, Any]] = {}  # by the model that a client holds
        for base in {held.of(node) for node in nodes} & known.keys() if tag else ():
            short = whole | {BASE: base, CHANGE: encode(known[base], model)}
            if _is_shorter(short, known[base], model, reference):
                in_short[base] = {CONFIG: short}

        def content(node: int) -> dict[str, Any]:
            return in_short.get(held.of(node), in_full)

        answers = federation.ask(grid, server_round, SUMMARY, nodes, content)
        answers, lacking = _who_lacks_it(answers)
        if lacking:
            answers += federation.ask(grid, server_round, SUMMARY, lacking, in_full)
        found = federation.columns(server_round, answers, read)
        self._last = {tag: model}
        if tag and held.every_message:
            held.keep(tag, model)
        held.learn(set(nodes) - set(found), "")
        held.learn(found, tag)
        return found


def _who_lacks_it(answers: list[Replies]) -> tuple[list[Replies], list[int]]:
    """Return the answers of clients that hold the model they were asked about, and the others."""
    held, lacking = [], list[int]()
    for table in answers:
        says = table.metrics.get(LACKS_BASE, [None] * len(table))
        without = [row for row, value in enumerate(says) if value is not None]
        lacking += [table.nodes[row] for row in without]
        held.append(table.without(without))
    return held, lacking


def _is_shorter(
    short: dict[str, Any],
    before: Arrays,
    after: Arrays,
    reference: Mapping[str, NDArray[Any]] | None,
) -> bool:
    """Return whether a question with a change is shorter than one with the model.

    A reference that is the change itself is taken out of it.
    """
    if short[CHANGE] is None:
        return False
    spared = flat_floats(after).nbytes
    # It is not where a round was tried again, or where a client holds an older model.
    if reference is not None and np.array_equal(flat_change(before, after), flat_floats(reference)):
        spared += len(short.pop(REFERENCE))
    return sum(map(len, short[CHANGE])) < spared


def encode_update(update: Mapping[str, NDArray[Any]]) -> bytes:
    """Return all non-zero entries of an update as bytes."""
    flat = flat_floats(update)
    return sparse.encode(flat, int(np.count_nonzero(flat)))
