"""Buffered asynchronous aggregation: the server does not wait for the slow, but uses their work.

Nguyen et al., 2022: *Federated Learning with Buffered Asynchronous Aggregation* (FedBuff). Clients
train all the time. As soon as k updates are in, the server aggregates them and sends the new model
to as many clients as are idle. An update of a client that began tau rounds ago counts for
``(1 + tau) ** -a``, with a = 1/2 in the paper's experiments.
"""

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import ARRAYS
from ...core.wire.records import entries, filled, sent_arrays
from .base import Layer


def staleness_weight(rounds: int, exponent: float = 0.5) -> float:
    """Return how much an update counts that is this many rounds old.

    >>> staleness_weight(0), staleness_weight(3)
    (1.0, 0.5)
    """
    return float((1.0 + rounds) ** -exponent)


class Buffer(Layer):
    """Turn updates of earlier models into updates of the present one, the older the smaller.

    A reply to the model w' of tau rounds ago becomes ``w + s(tau) (reply - w')``. The mean of such
    replies is FedBuff's step, and any other aggregator can work with them too.

    Parameters
    ----------
    inner : Strategy
        The aggregator.
    exponent : float (default: 0.5)
        The a above; 0 lets all count the same.
    """

    def __init__(self, inner: Strategy, exponent: float = 0.5) -> None:
        super().__init__(inner)
        self.exponent = exponent
        self._now: ArrayRecord | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the present model."""
        self._now = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate what is in the buffer."""
        moved = (self._moved(server_round, reply) for reply in replies)
        arrays, metrics = super().aggregate_train(server_round, moved)
        self._now = arrays if arrays is not None else self._now
        return arrays, metrics

    def _moved(self, server_round: int, reply: Message) -> Message:
        if reply.has_error() or self._now is None:
            return reply
        node = reply.metadata.src_node_id
        age = server_round - self.federation.sent_round(node)
        if age <= 0:
            return reply
        weight = staleness_weight(age, self.exponent)
        now, sent = from_record(self._now), from_record(self.federation.sent_model(node))
        after = from_record(sent_arrays(reply, ARRAYS))
        arrays = {
            name: (
                np.asarray(now[name] + weight * (after[name] - sent[name]), dtype=array.dtype)
                if array.dtype.kind == "f"
                else after[name]
            )
            for name, array in now.items()
        }
        reply.content = filled(RecordDict, {**entries(reply.content), ARRAYS: to_record(arrays)})
        return reply
