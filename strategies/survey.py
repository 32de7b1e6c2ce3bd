"""Asking clients what a selector wants to know before it chooses (phase 2 of FL-GSCCS).

A client that answered the last question holds the model that it was about. It is sent only what has
changed since, which is also the update that a similarity is relative to, and no model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ..core.wire import sparse
from ..core.wire.arrays import flat_floats, from_record
from ..core.wire.changes import BASE, CHANGE, TAG, encode_change, tag_of
from ..core.wire.keys import ARRAYS, CONFIG, HISTOGRAM, REFERENCE, SUMMARY, WANTS
from .federation import Federation
from .observations import answered, lacks_model


class Survey:
    """Sends ``query.summary`` messages and reads the answers.

    Parameters
    ----------
    bounded : bool (default: True)
        Whether a similarity must lie in [-1, 1].
    labels : int (default: 0)
        How many labels a histogram must be of; 0 if that is not known.
    resend : bool (default: False)
        Send the whole model every time; else clients are to keep the last one.
    """

    def __init__(self, *, bounded: bool = True, labels: int = 0, resend: bool = False) -> None:
        self.bounded = bounded
        self.labels = labels
        self.resend = resend
        self._model: dict[str, NDArray[Any]] = {}  # of the last question
        self._tag = ""

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

        Parameters
        ----------
        federation : Federation
            The clients.
        grid : Grid
            How to reach them.
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
        read, asked = answered(wants, self.bounded, self.labels), {WANTS: wants}
        if wants == HISTOGRAM:
            answers = federation.ask(grid, server_round, SUMMARY, nodes, {CONFIG: asked})
            return federation.readable(server_round, answers, read)
        model = from_record(arrays)
        tag = "" if self.resend else tag_of(model)
        whole: dict[str, Any] = asked | ({TAG: tag} if tag else {})
        if reference is not None:
            whole[REFERENCE] = encode_update(reference)
        in_full: dict[str, Any] = {CONFIG: whole, ARRAYS: arrays}
        holders = {node for node in nodes if tag and federation.holds(node) == self._tag != ""}
        in_short = self._in_short(asked, tag, model, reference) if holders else None

        def content(node: int) -> dict[str, Any]:
            return in_short if in_short is not None and node in holders else in_full

        answers = federation.ask(grid, server_round, SUMMARY, nodes, content)
        lacking = [node for node, answer in answers.items() if lacks_model(answer)]
        answers |= federation.ask(grid, server_round, SUMMARY, lacking, in_full)
        found = federation.readable(server_round, answers, read)
        self._model, self._tag = model, tag
        federation.learn_held(set(nodes) - set(found), "")
        federation.learn_held(found, tag)
        return found

    def _in_short(
        self,
        asked: dict[str, Any],
        tag: str,
        model: dict[str, NDArray[Any]],
        reference: Mapping[str, NDArray[Any]] | None,
    ) -> dict[str, Any] | None:
        """Return the question for those who hold the last model, if that is shorter."""
        change = encode_change(self._model, model)
        if change is None:
            return None
        short = asked | {TAG: tag, BASE: self._tag, CHANGE: change}
        if reference is None:
            shorter = sum(map(len, change)) < flat_floats(model).nbytes
            return {CONFIG: short} if shorter else None
        difference = flat_floats(model) - flat_floats(self._model)
        if not np.array_equal(difference, flat_floats(reference)):  # a round was tried again
            short[REFERENCE] = encode_update(reference)
        return {CONFIG: short}


def encode_update(update: Mapping[str, NDArray[Any]]) -> bytes:
    """Return all non-zero entries of an update as bytes."""
    flat = flat_floats(update)
    return sparse.encode(flat, int(np.count_nonzero(flat)))
