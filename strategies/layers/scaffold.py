"""SCAFFOLD's half on the server: the control variate of all clients together."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.wire.arrays import checked_view, from_record, to_record
from ...core.wire.keys import CONTROL
from ...core.wire.records import attach, detach, entries
from ..federation.federation import BadReply
from ..federation.plausibility import UsualSize
from .base import Layer

_FACTOR = 100.0  # how many times the usual change of a variate is absurd

Arrays = dict[str, NDArray[Any]]


class Scaffold(Layer):
    """Send ``c`` with the model and move it by the changes that clients report.

    ``c`` starts at zero, which need not be sent, and becomes ``c + sum(change of c_i) / N`` (eq. 5)
    with N the number of connected clients: this layer stands outside selection. A reply whose
    change does not fit the model, or is not finite, is set aside as
    :class:`~forager.strategies.layers.quarantine.Quarantine` does it.

    Parameters
    ----------
    inner : Strategy
        Gets replies without what this layer asked for.
    """

    own_records = (CONTROL,)

    def __init__(self, inner: Strategy) -> None:
        super().__init__(inner)
        self.control: Arrays = {}
        self._model: Arrays = {}  # the float arrays that changes must be like
        self._clients = 1
        self._sizes = UsualSize(_FACTOR)

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Scaffold":
        """Return the layer; it has no settings."""
        return cls(inner)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add the control variate to every message."""
        self._model = {n: a for n, a in from_record(arrays).items() if a.dtype.kind == "f"}
        self._clients = max(1, len(list(grid.get_node_ids())))
        messages = list(super().configure_train(server_round, arrays, config, grid))
        if self.control:
            record = to_record(self.control)
            for message in messages:
                attach(message, CONTROL, record)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the models, and the changes of the variates."""
        # In double precision, so that the order of arrival hardly matters
        sums = {n: np.zeros(a.shape) for n, a in self._model.items()}

        most = self._sizes.most(otherwise=self._first_limit())

        def add(reply: Message) -> None:
            change = self._change(reply)
            size = math.sqrt(sum(float(np.vdot(a, a)) for a in change.values()))
            if not size <= most:
                raise BadReply(
                    f"change of a control variate of norm {size:.3g}, at most {most:.3g}"
                )
            self._sizes.append(size)
            for name, array in change.items():
                sums[name] += array

        sound = self.federation.sound(server_round, replies, add)
        result = super().aggregate_train(server_round, sound)
        before = self.control or {n: np.zeros_like(a) for n, a in self._model.items()}
        self.control = {
            name: np.asarray(before[name] + total / self._clients, dtype=before[name].dtype)
            for name, total in sums.items()
        }
        return result

    def _first_limit(self) -> float:
        """Return how long a change may be before any is known: many times the model's norm."""
        squares = sum(float(np.vdot(a, a)) for a in self._model.values())
        return _FACTOR * max(1.0, math.sqrt(squares))

    def _change(self, reply: Message) -> Arrays:
        """Take the change of a control variate out of a reply; :class:`BadReply` if it is wrong."""
        record = detach(reply, CONTROL, ArrayRecord)
        if record is None or entries(record).keys() != self._model.keys():
            raise BadReply("no change of a control variate with the names of the model")
        change: Arrays = {}
        for name, array in entries(record).items():
            try:
                change[name] = checked_view(array, self._model[name])
            except ValueError as error:
                raise BadReply(f"control variate {name}: {error}") from error
            if not np.isfinite(change[name]).all():
                raise BadReply(f"control variate {name}: values that are not finite")
        return change

    def own_state(self) -> dict[str, Any]:
        """Return the control variate."""
        return {"control": self.control, "sizes": self._sizes.state()}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self.control = dict(state["control"])
        self._sizes.load(state["sizes"])
