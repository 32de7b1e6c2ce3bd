"""Fine-tuning: the server trains every aggregated model a little more, on its own data."""

from collections.abc import Iterable
from time import perf_counter

from flwr.app import Message
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.log.events import FineTuned
from ...core.wire.arrays import from_record, to_record
from ..server_samples import ServerSamples
from .base import Layer, Outcome


class FineTuneLayer(Layer):
    """Train on the server's validation set after each aggregation (GCFL's reference, table 1)."""

    def __init__(self, inner: Strategy, config: RunConfig) -> None:
        super().__init__(inner)
        self.epochs = config.fine_tune.epochs
        self.samples = ServerSamples(config, "fine-tune.epochs")

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate, then fine-tune."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None:
            return None, metrics
        started = perf_counter()
        tuned = self.samples.trained(from_record(arrays), server_round, self.epochs)
        seconds = perf_counter() - started
        self.federation.note(FineTuned(round=server_round, loss=tuned.loss, seconds=seconds))
        return to_record(tuned.arrays), metrics
