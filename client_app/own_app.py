"""The client side in a user's own app: its model, data, loss and train function."""

import json
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import Any, TypeVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from ..core.config import ConfigError, RunConfig, read_config
from ..core.learning.job import Outcomes
from ..core.learning.train_settings import local_steps, train_settings
from ..core.tasks import ClientData, Split
from ..core.tasks.errors import SayableError
from ..core.tasks.own_app import AppProblem, as_split
from ..core.tasks.own_task import OwnData
from ..core.tasks.task import Task
from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import ARRAYS, CORESET, NUM_EXAMPLES, TRAIN_LOSS
from ..core.wire.records import attach, entries, filled, records_of
from .batch import ClientBatch
from .device.packing import Packing
from .hooks.base import ClientHook
from .side import ClientSide, hooks_of

_log = logging.getLogger("forager")
_at_work: ContextVar["OwnSide | None"] = ContextVar("at_work", default=None)

Data = TypeVar("Data")


class AppFailed(Exception):
    """The app's train function answered with an error."""

    def __init__(self, reply: Message) -> None:
        super().__init__(reply.error.reason)
        self.reply = reply


class OwnSide(ClientSide):
    """An app's model, data, loss and the server's settings; without data only updates are seen."""

    def __init__(
        self,
        settings: str,
        problem: AppProblem | None,
        data: Callable[[Context], Any] | None,
        trains: bool,
    ) -> None:
        self.app, self._data, self.trains = problem, data, trains
        config = read_config(json.loads(settings or "{}"))
        if problem is None:
            self.config, self.note = config, ""
        else:
            super().__init__(config)
        self.train_app: Callable[[Message], Message] | None = None
        self.context: Context | None = None  # of the message that is answered
        self.batch: ClientBatch | None = None
        self.was_given_data = False

    def _load_task(self, config: RunConfig) -> Task:
        assert self.app is not None
        spec = config.task_spec()
        return Task(spec, OwnData(self.app, spec))

    @cached_property
    def hooks(self) -> list[ClientHook]:
        """The client halves of the run's methods, as far as this client has what they need."""
        hooks, keep = hooks_of(self.config), self.config.personalise.keep
        if keep != "none" and self.app is None:
            raise ConfigError(
                f"personalise.keep = {keep!r} needs forager.client_mod(model=..., data=...)"
            )
        return hooks if self.app is not None else [hook for hook in hooks if hook.of_updates]

    def state_name(self, run: str) -> str:
        """Return the run."""
        return run

    def holdings(self, contexts: Sequence[Context]) -> list[ClientData]:
        """Return what the app says that the client holds."""
        if self._data is None:
            raise SayableError("this needs forager.client_mod(model=..., data=...), both of them")
        return [self.task.take(as_split(self._data(context))) for context in contexts]

    @cached_property
    def packing(self) -> Packing:
        """How samples are stored, as the client's own show."""
        if self.context is not None:
            self.holdings([self.context])
        return Packing.of(self.task)

    def unscaled(self, context: Context) -> ClientData:
        """Return what the client holds: nothing is scaled here."""
        return self.holdings([context])[0]

    def train(self, batch: ClientBatch) -> Outcomes:
        """Let the app's train function work, or the trainer of the run where the app wants it."""
        if self.trains:
            return super().train(batch)
        if self.config.objective != "sgd":
            raise ConfigError(
                f"objective = {self.config.objective!r} changes how the model is trained: let "
                "Forager train, by forager.client_mod(model=..., data=..., trains=True)"
            )
        assert self.train_app is not None
        message = batch.requests[0]
        keeps = self.config.personalise.keep != "none"
        if ARRAYS not in entries(message.content) or keeps:  # the client holds it, or a part of it
            attach(message, ARRAYS, to_record(batch.models[0]))
        self.batch, self.was_given_data = batch, False
        token = _at_work.set(self)
        try:
            reply = self.train_app(message)
        finally:
            _at_work.reset(token)
            self.batch = None
        if reply.has_error():
            raise AppFailed(reply)
        return self._outcomes(batch, reply)

    def _outcomes(self, batch: ClientBatch, reply: Message) -> Outcomes:
        metrics = records_of(reply.content, MetricRecord)
        models = records_of(reply.content, ArrayRecord)
        if len(metrics) != 1 or len(models) != 1:
            found = f"{len(models)} array records and {len(metrics)} metric records"
            raise SayableError(f"the train function replied with {found}; one of each is needed")
        batch.metrics = {name: [value] for name, value in entries(metrics[0]).items()}
        for name, record in entries(reply.content).items():
            if type(record) is ConfigRecord:
                batch.put(name, 0, record)
        told = entries(metrics[0])
        if batch.counts_for[0] is not None and self.was_given_data:
            batch.metrics[NUM_EXAMPLES] = [batch.counts_for[0]]
        if not self.was_given_data and any(hook.chooses_data for hook in self.hooks):
            self._say_that_all_was_used(batch)
        settings, examples = train_settings(self.config, batch.round), told.get(NUM_EXAMPLES, 1)
        steps = local_steps(settings, examples)
        stack = {name: array[None] for name, array in from_record(models[0]).items()}
        return Outcomes(stack, [float(told.get(TRAIN_LOSS, 0.0))], [int(examples)], [steps])

    def _say_that_all_was_used(self, batch: ClientBatch) -> None:
        _log.warning(
            "the server chooses what clients train on, but the train function did not call "
            "forager.local_data(message, data): it trained on all its data"
        )
        if CORESET in batch.records:
            size = len(batch.holdings[0].train)
            all_of_it = {"round": 0, "size": size, "seconds": 0.0}
            batch.records[CORESET] = [filled(ConfigRecord, all_of_it)]


def local_data(message: Message, data: Data, *, weights: bool = False) -> Data:
    """Return the samples to train on: a coreset, the store of a stream, or all of the data.

    Call it in your train function, after loading the data.

    Parameters
    ----------
    message : Message
        The training message.
    data : pair of arrays or tensors, data set, or data loader
        What the ``data`` function of :func:`forager.client_mod` returns. The result has the same
        form.
    weights : bool
        Whether to return triples of input, label and weight. Equal weights are 1.

    Examples
    --------
    >>> local_data(None, ([1.0, 2.0], [0, 1]))  # outside of a run: all of it
    ([1.0, 2.0], [0, 1])
    """
    side = _at_work.get()
    if side is None or side.batch is None:
        return data
    side.was_given_data = True
    chosen = any(hook.chooses_data for hook in side.hooks)
    if not chosen and not weights:
        return data
    samples, own = side.batch.data[0], side.batch.weights[0]
    assert isinstance(samples, Split)
    columns = [samples.x, samples.y]
    if weights:
        columns.append(torch.ones(len(samples)) if own is None else torch.from_numpy(own))
    given: Data = _like(data, columns)
    return given


def _like(data: Any, columns: Sequence[torch.Tensor]) -> Any:
    if isinstance(data, DataLoader):
        return DataLoader(
            TensorDataset(*columns),
            batch_size=data.batch_size,
            shuffle=isinstance(data.sampler, RandomSampler),
        )
    if isinstance(data, tuple | list) and len(data) == 2:
        return tuple(columns)
    return TensorDataset(*columns)
