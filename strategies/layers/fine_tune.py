"""Fine-tuning: the server trains every aggregated model a little more, on its own data."""

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter

from flwr.app import Message
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.learning.job import Job, batch_seed
from ...core.learning.model_arrays import chosen_device
from ...core.learning.objectives.plain import Plain
from ...core.learning.train_settings import train_settings
from ...core.learning.trainer import train_one
from ...core.log.events import FineTuned
from ...core.tasks import load_task
from ...core.wire.arrays import from_record, to_record
from ..checks import validation_data
from .base import Layer, Outcome


class FineTuneLayer(Layer):
    """Train on the server's validation set after each aggregation (GCFL's reference, table 1)."""

    def __init__(self, inner: Strategy, config: RunConfig) -> None:
        super().__init__(inner)
        self.config = config
        self.data = validation_data(config, "fine-tune.epochs")
        task = load_task(config.task_spec())
        self.problem = task.problem
        self.model = task.build_model().to(chosen_device(config.device))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate, then fine-tune."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None:
            return None, metrics
        started = perf_counter()
        settings = train_settings(self.config, server_round)
        settings = replace(settings, epochs=self.config.fine_tune.epochs, steps=0)
        seed = batch_seed(self.config.seed, "server", server_round)
        job = Job(from_record(arrays), self.data, seed)
        tuned = train_one(self.model, job, settings, Plain(self.config), self.problem)
        seconds = perf_counter() - started
        self.federation.note(FineTuned(round=server_round, loss=tuned.loss, seconds=seconds))
        return to_record(tuned.arrays), metrics
