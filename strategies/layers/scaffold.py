"""The server's part of SCAFFOLD (Karimireddy et al., 2020): the global control variate."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import CONTROL
from ...core.wire.replies import Replies
from ...core.wire.requests import Requests
from ..federation.plausibility import UsualSize
from .base import Layer, Outcome

_UNKNOWN = 100.0  # times the model's norm that a change may have until some are known
_WIDER = 10.0  # times the limit of updates: the first change of a client is long, later ones short
_COUNTS = 0.4  # of the limit of updates, that a change counts for: it moves all clients for good

Arrays = dict[str, NDArray[Any]]


class ScaffoldLayer(Layer):
    """Send ``c`` with the model and move it by the changes that clients report.

    ``c`` starts at zero, which is not sent, and becomes ``c + sum(change of c_i) / N`` (eq. 5),
    where N is the number of connected clients: this layer stands outside selection. It sets aside
    a reply whose change does not fit the model, is not finite, or is longer than 10 ``norm_factor``
    times the usual. All others are clipped to 0.4 ``norm_factor`` times the usual, twice by
    default, because no robust aggregator averages ``c``.
    """

    remembers = ("control", "_sizes")
    own_records = (CONTROL,)

    def __init__(self, inner: Strategy, norm_factor: float = 5.0) -> None:
        super().__init__(inner)
        self.norm_factor = norm_factor
        self.control: Arrays = {}
        self._model: Arrays = {}  # the float arrays that changes must be like
        self._clients = 1
        self._sizes = UsualSize(_WIDER * norm_factor)
        self._sums: Arrays = {}  # of the changes of this round

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "ScaffoldLayer":
        """Return the layer that a config describes."""
        return cls(inner, config.quarantine.norm_factor)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember what changes must be like, and how many clients there are."""
        self._model = {n: a for n, a in from_record(arrays).items() if a.dtype.kind == "f"}
        self._clients = max(1, len(list(grid.get_node_ids())))
        return super().configure_train(server_round, arrays, config, grid)

    def guide(self, server_round: int, requests: Requests) -> None:
        """Add the control variate to every message."""
        if self.control:
            requests.put(CONTROL, to_record(self.control))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate the models, and the changes of the variates."""
        # In double precision, so that the order of arrival hardly matters
        self._sums = {n: np.zeros(a.shape) for n, a in self._model.items()}
        self._sizes.settle()
        result = super().aggregate_train(server_round, replies)
        before = self.control or {n: np.zeros_like(a) for n, a in self._model.items()}
        self.control = {
            name: np.asarray(before[name] + total / self._clients, dtype=before[name].dtype)
            for name, total in self._sums.items()
        }
        return result

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Take the changes of control variates out of replies, and add them up."""
        replies, sizes = self._checked(server_round, replies)
        if len(replies):
            longest = _COUNTS * self.norm_factor * self._sizes.median or math.inf
            shares = np.minimum(1.0, longest / np.maximum(sizes, 1e-300))
            for name, stack in replies.stack(CONTROL).items():
                self._sums[name] += np.tensordot(shares, stack, axes=1)
            replies.drop(CONTROL)
        return replies

    def _checked(self, server_round: int, replies: Replies) -> tuple[Replies, NDArray[np.float64]]:
        """Return the rows whose changes fit the model and are not too long, with their norms."""
        wrong = {
            row: f"control variate: {why}"
            for row, why in replies.fitting(CONTROL, self._model).items()
        }
        sizes = np.zeros(len(replies))
        if len(wrong) < len(replies):
            for array in replies.stack(CONTROL).values():
                rows = array.reshape(len(replies), -1)
                sizes += np.vecdot(rows, rows)
        sizes = np.sqrt(sizes)
        self._sizes.hear(self.federation.keys(replies.nodes), sizes.tolist())
        most = self._sizes.most(otherwise=self._first_limit())
        for row in np.flatnonzero(~(sizes <= most)).tolist():
            reason = f"control variate: a change of norm {sizes[row]:.3g}"
            wrong.setdefault(row, f"{reason}, at most {most:.3g}")
        kept = [row for row in range(len(replies)) if row not in wrong]
        return self.federation.sound(server_round, replies, wrong), sizes[kept]

    def _first_limit(self) -> float:
        """Return how long a change may be before any is known: many times the model's norm."""
        squares = sum(float(np.vdot(a, a)) for a in self._model.values())
        return _UNKNOWN * max(1.0, math.sqrt(squares))
