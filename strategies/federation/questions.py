"""Questions to clients that a selector wants answered before it chooses (phase 2 of FL-GSCCS).

A client that answered the last question holds the model that it was about. It is sent only what has
changed since, which is also the update that a similarity is relative to, and no model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
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
from ...core.wire.keys import ARRAYS, CONFIG, HISTOGRAM, REFERENCE, SUMMARY, WANTS
from ...core.wire.replies import Replies
from .federation import Federation
from .ledger import Arrays
from .observations import answered


@dataclass
class Questions:
    """Questions before the choice: which, to how many clients, and which answers are valid."""

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
        named: dict[str, Any] = asked | ({TAG: tag} if tag else {})

        @cache  # often nobody is sent it
        def referred() -> dict[str, bytes]:
            return {} if reference is None else {REFERENCE: encode_update(reference)}

        @cache
        def in_full() -> dict[str, Any]:
            return {CONFIG: named | referred(), ARRAYS: arrays}

        known = held.models if held.every_message else self._last
        encode = encode_shortest if held.every_message else encode_change
        in_short: dict[str, dict[str, Any]] = {}  # by the model that a client holds
        for base in {held.of(node) for node in nodes} & known.keys() if tag else ():
            change = encode(known[base], model)
            if change is None:
                continue
            # It is not where a round was tried again, or where a client holds an older model.
            is_reference = reference is not None and np.array_equal(
                flat_change(known[base], model), flat_floats(reference)
            )
            more = sum(map(len, change)) - flat_floats(model).nbytes
            if more < 0 or (is_reference and more < len(referred()[REFERENCE])):
                short = named | {BASE: base, CHANGE: change}
                in_short[base] = {CONFIG: short if is_reference else short | referred()}

        def content(node: int) -> dict[str, Any]:
            return in_short.get(held.of(node)) or in_full()

        answers = federation.ask(grid, server_round, SUMMARY, nodes, content)
        answers, lacking = _who_lacks_it(answers)
        if lacking:
            answers += federation.ask(grid, server_round, SUMMARY, lacking, in_full())
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


def encode_update(update: Mapping[str, NDArray[Any]]) -> bytes:
    """Return all non-zero entries of an update as bytes."""
    flat = flat_floats(update)
    return sparse.encode(flat, int(np.count_nonzero(flat)))
