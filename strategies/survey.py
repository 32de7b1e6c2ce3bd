"""Asking clients what a selector wants to know before it chooses (phase 2 of FL-GSCCS)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from strategies.roster import Roster
from wire import sparse
from wire.arrays import flat_floats
from wire.keys import (
    ARRAYS,
    CONFIG,
    HISTOGRAM,
    LOSS,
    REFERENCE,
    ROUND,
    SIMILARITY,
    SUMMARY,
    WANTS,
)
from wire.records import filled, records_of

# What an honest client can answer; the printed form of the similarity has no bound.
_RANGES = {SIMILARITY: (-1.0 - 1e-6, 1.0 + 1e-6), LOSS: (0.0, math.inf)}


class BadAnswer(ValueError):
    """Why an answer is not used."""


class Survey:
    """Sends ``query.summary`` messages and reads the answers.

    Parameters
    ----------
    roster : Roster
        Stable names of the clients.
    bounded : bool (default: True)
        Whether a similarity must lie in [-1, 1].
    timeout : float (default: 600.0)
        Seconds to wait; who has not answered by then is not a candidate in this round.
    """

    def __init__(self, roster: Roster, *, bounded: bool = True, timeout: float = 600.0) -> None:
        self.roster = roster
        self.bounded = bounded
        self.timeout = timeout

    def ask(
        self,
        grid: Grid,
        nodes: Sequence[int],
        wants: str,
        server_round: int,
        arrays: ArrayRecord,
        reference: Mapping[str, NDArray[Any]] | None,
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Return the answers by node, and why others are not used.

        Parameters
        ----------
        grid : Grid
            How to reach the clients.
        nodes : sequence of int
            Whom to ask.
        wants : str
            "similarity", "loss" or "histogram".
        server_round : int
            The round that clients are chosen for.
        arrays : ArrayRecord
            The global model.
        reference : mapping of str to array, optional
            The last global update, which a similarity is relative to. It travels as its non-zero
            entries: the mean of sparse updates is sparse.
        """
        config = ConfigRecord({ROUND: server_round, WANTS: wants})
        if reference is not None:
            config[REFERENCE] = encode_update(reference)
        content: dict[str, Any] = {CONFIG: config}
        if wants != HISTOGRAM:
            content[ARRAYS] = arrays
        messages = [
            Message(filled(RecordDict, content), dst_node_id=node, message_type=SUMMARY)
            for node in nodes
        ]
        return self._read(grid.send_and_receive(messages, timeout=self.timeout), wants)

    def _read(
        self, replies: Iterable[Message], wants: str
    ) -> tuple[dict[int, Any], dict[int, str]]:
        answers: dict[int, Any] = {}
        refused: dict[int, str] = {}
        for reply in replies:
            if reply.has_error():
                continue
            self.roster.learn(reply)
            try:
                answers[reply.metadata.src_node_id] = self.check(reply, wants)
            except BadAnswer as error:
                refused[reply.metadata.src_node_id] = str(error)
        return answers, refused

    def check(self, reply: Message, wants: str) -> Any:
        """Return what a reply says, or raise :class:`BadAnswer`."""
        records = records_of(reply.content, MetricRecord)
        value = records[0].get(wants) if len(records) == 1 else None
        if wants == HISTOGRAM:
            if not isinstance(value, list) or not all(math.isfinite(v) and v >= 0 for v in value):
                raise BadAnswer(f"{wants} is not a list of counts")
            return value
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise BadAnswer(f"{wants} = {value!r} is not a finite number")
        low, high = _RANGES[wants]
        if (wants != SIMILARITY or self.bounded) and not low <= value <= high:
            raise BadAnswer(f"{wants} = {value!r} is not between {low:.3g} and {high:.3g}")
        return float(value)


def encode_update(update: Mapping[str, NDArray[Any]]) -> bytes:
    """Return all non-zero entries of an update as bytes."""
    flat = flat_floats(update)
    return sparse.encode(flat, int(np.count_nonzero(flat)))
