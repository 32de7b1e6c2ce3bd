"""Base classes of aggregators that work on updates, not models."""

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import NUM_EXAMPLES
from ...core.wire.records import records_of
from ..layers.base import Outcome

Arrays = dict[str, NDArray[np.floating]]
Vector = NDArray[np.floating]


class FromCurrent(FedAvg):
    """FedAvg that remembers the model that updates start from."""

    def __init__(self, **everyone: int) -> None:
        super().__init__(**everyone)  # type: ignore[arg-type]
        self.current: Arrays = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the model that updates start from."""
        self.current = from_record(arrays)
        return super().configure_train(server_round, arrays, config, grid)


class UpdateAverage(FromCurrent):
    """Move the model by the update that :meth:`combine` returns for a matrix of updates."""

    def combine(self, updates: Vector, weights: Vector, server_round: int) -> Vector:
        """Return the update of the model, given a row and a weight per client."""
        raise NotImplementedError

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Move the model by the combined updates."""
        replies = list(replies)
        if not replies:
            return None, None
        before = self.flat(self.current)
        updates = np.empty((len(replies), before.size), before.dtype)
        for row, reply in zip(updates, replies, strict=True):
            arrays = from_record(records_of(reply.content, ArrayRecord)[0])
            np.subtract(self.flat(arrays), before, out=row)
        counts = [records_of(r.content, MetricRecord)[0][NUM_EXAMPLES] for r in replies]
        weights = np.array([float(str(count)) for count in counts])
        after = before + self.combine(updates, weights, server_round)
        cuts = np.cumsum([array.size for array in self.current.values()])[:-1]
        parts = zip(self.current.items(), np.split(after, cuts), strict=True)
        self.current = {n: part.reshape(a.shape).astype(a.dtype) for (n, a), part in parts}
        metrics = self.train_metrics_aggr_fn([r.content for r in replies], self.weighted_by_key)
        return to_record(self.current), metrics

    def flat(self, arrays: Arrays) -> Vector:
        """Return the arrays of a model as one vector, in the order of the model."""
        return np.concatenate([arrays[name].ravel() for name in self.current])
