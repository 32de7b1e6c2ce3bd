"""Asking clients what a selector wants to know before it chooses (phase 2 of FL-GSCCS).

Who has answered the last question holds the model that it was about. Such a client is sent what has
changed in it since, which is also the update that a similarity is relative to, and no model.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ..core.wire import sparse
from ..core.wire.arrays import flat_floats, from_record
from ..core.wire.changes import BASE, CHANGE, LACKS_BASE, TAG, encode_change, tag_of
from ..core.wire.keys import (
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
from ..core.wire.records import filled, records_of
from .roster import Roster

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
    resend : bool (default: False)
        Send the whole model every time; else clients are to keep the last one.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        bounded: bool = True,
        timeout: float = 600.0,
        resend: bool = False,
    ) -> None:
        self.roster = roster
        self.bounded = bounded
        self.timeout = timeout
        self.resend = resend
        self._model: dict[str, NDArray[Any]] = {}  # of the last question
        self._tag = ""
        self._holders: set[int] = set()  # who answered it

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
            The last global update, which a similarity is relative to. With a whole model it travels
            as its non-zero entries: the mean of sparse updates is sparse.
        """
        asked: dict[str, Any] = {ROUND: server_round, WANTS: wants}
        if wants == HISTOGRAM:
            answers, refused, _ = self._exchange(grid, dict.fromkeys(nodes, _content(asked)), wants)
            return answers, refused
        model = from_record(arrays)
        tag = "" if self.resend else tag_of(model)
        whole = asked | ({TAG: tag} if tag else {})
        if reference is not None:
            whole[REFERENCE] = encode_update(reference)
        in_full, in_short = _content(whole, arrays), self._in_short(asked, tag, model, reference)
        contents = {
            node: in_short if in_short is not None and node in self._holders else in_full
            for node in nodes
        }
        answers, refused, lacking = self._exchange(grid, contents, wants)
        if lacking:
            more, bad, still = self._exchange(grid, dict.fromkeys(lacking, in_full), wants)
            answers |= more
            refused |= bad | dict.fromkeys(still, "lacks a model that it was sent")
        self._model, self._tag, self._holders = model, tag, set(answers)
        return answers, refused

    def _in_short(
        self,
        asked: dict[str, Any],
        tag: str,
        model: dict[str, NDArray[Any]],
        reference: Mapping[str, NDArray[Any]] | None,
    ) -> dict[str, Any] | None:
        """Return the question for those who hold the last model, if that is shorter."""
        change = encode_change(self._model, model) if tag and self._holders else None
        if change is None:
            return None
        short = asked | {TAG: tag, BASE: self._tag, CHANGE: change}
        if reference is None:
            return _content(short) if sum(map(len, change)) < flat_floats(model).nbytes else None
        difference = flat_floats(model) - flat_floats(self._model)
        if not np.array_equal(difference, flat_floats(reference)):  # a round was tried again
            short[REFERENCE] = encode_update(reference)
        return _content(short)

    def _exchange(
        self, grid: Grid, contents: Mapping[int, dict[str, Any]], wants: str
    ) -> tuple[dict[int, Any], dict[int, str], list[int]]:
        """Return the answers by node, why others are not used, and who lacks the last model."""
        messages = [
            Message(filled(RecordDict, content), dst_node_id=node, message_type=SUMMARY)
            for node, content in contents.items()
        ]
        answers: dict[int, Any] = {}
        refused: dict[int, str] = {}
        lacking: list[int] = []
        for reply in grid.send_and_receive(messages, timeout=self.timeout):
            if reply.has_error():
                continue
            self.roster.learn(reply)
            node = reply.metadata.src_node_id
            if any(LACKS_BASE in record for record in records_of(reply.content, MetricRecord)):
                lacking.append(node)
                continue
            try:
                answers[node] = self.check(reply, wants)
            except BadAnswer as error:
                refused[node] = str(error)
        return answers, refused, lacking

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


def _content(config: dict[str, Any], arrays: ArrayRecord | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {CONFIG: ConfigRecord(config)}
    return content if arrays is None else content | {ARRAYS: arrays}


def encode_update(update: Mapping[str, NDArray[Any]]) -> bytes:
    """Return all non-zero entries of an update as bytes."""
    flat = flat_floats(update)
    return sparse.encode(flat, int(np.count_nonzero(flat)))
