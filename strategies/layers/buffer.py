"""Buffered asynchronous aggregation: the server uses late updates instead of waiting for them.

Nguyen et al., 2022: *Federated Learning with Buffered Asynchronous Aggregation* (FedBuff). Clients
train all the time. As soon as k updates have arrived, the server aggregates them and sends the new
model to k idle clients. An update of a client that began tau rounds ago has the weight
``(1 + tau) ** -a``, with a = 1/2 in the paper's experiments.

Late updates of a round that did not wait for them are aggregated likewise, in the next round (after
REFL: Abdelmoniem et al., 2023, whose weight also grows with the deviation of an update).
"""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.wire.arrays import from_record
from ...core.wire.keys import ARRAYS
from ...core.wire.replies import Replies
from .base import Layer, Outcome


def staleness_weight(rounds: int, exponent: float = 0.5) -> float:
    """Return the weight of an update that began this many rounds ago."""
    return float((1.0 + rounds) ** -exponent)


class Buffer(Layer):
    """Turn updates of earlier models into updates of the current one; older ones count less.

    A reply to the model w' of tau rounds ago becomes ``w + s(tau) (reply - w')``. The mean of such
    replies is FedBuff's step, and any other aggregator can use them, too. The exponent is the a
    above; with 0 all count the same.
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

    def begin(self, server_round: int, arrays: ArrayRecord, grid: Grid) -> None:
        """Remember the present model."""
        self._now = arrays
        super().begin(server_round, arrays, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate the updates in the buffer."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        self._now = arrays if arrays is not None else self._now
        return arrays, metrics

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Return replies as if they had been made from the present model."""
        late = [
            (row, server_round - a.round, a.model)
            for row, a in enumerate(self.federation.ledger.of(replies))
            if a is not None and a.model is not None and a.round < server_round
        ]
        if self._now is None or not late:
            return replies
        now = from_record(self._now)
        stacks = {name: array.copy() for name, array in replies.arrays.items()}
        for row, age, model in late:
            weight, sent = staleness_weight(age, self.exponent), from_record(model)
            for name, array in now.items():
                if array.dtype.kind == "f":
                    stacks[name][row] = array + weight * (stacks[name][row] - sent[name])
        replies.put(ARRAYS, stacks)
        return replies
