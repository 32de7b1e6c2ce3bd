"""The app that hooks and handlers work in: its model, data, loss and settings."""

import logging
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from flwr.app import Context

from ..core.config import RunConfig, read_config
from ..core.config.reading import SharedConfig
from ..core.learning.job import Job, Outcomes
from ..core.learning.model_arrays import check_trainable, device_or_cpu
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import TrainSettings, train_settings
from ..core.learning.trainer import Trainer
from ..core.methods.base import load
from ..core.methods.catalogue import chosen, methods
from ..core.tasks import ClientData, Task, load_task
from ..core.tasks.errors import SayableError
from ..core.tasks.metrics import Metric
from ..core.tasks.problems import Problem
from ..core.wire.keys import FROZEN, NUM_EXAMPLES, TRAIN_LOSS
from .batch import ClientBatch
from .clients import VirtualClients, client_data
from .device.packing import Packing
from .hooks.base import ClientHook
from .hooks.personal import PersonalParts

_log = logging.getLogger("forager")


class ClientSide:
    """The model, the data, the loss and the settings of a run, found once per process."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.task: Task = self._load_task(config)
        self._device, self.note = device_or_cpu(config.device)  # what the server should know
        if self.note:
            _log.warning(self.note)

    def _load_task(self, config: RunConfig) -> Task:
        return load_task(config.task_spec())

    @cached_property
    def hooks(self) -> list[ClientHook]:
        """The client halves of the run's methods, in the order in which they act."""
        return hooks_of(self.config)

    @cached_property
    def trainer(self) -> Trainer:
        """The model, the loss and its training loop; ask after the data, which give its shape."""
        model, local = self.task.build_model(), self.config.local
        check_trainable(model)
        return Trainer(model.to(self._device), local.trainer, local.threads, self.problem)

    @cached_property
    def objective(self) -> Plain:
        """What is minimised."""
        made: Plain = load(methods("objective")[self.config.objective].core)(self.config)
        return made

    @property
    def problem(self) -> Problem:
        """What is learned."""
        return self.task.problem

    @cached_property
    def num_classes(self) -> int:
        """Number of classes, or of strata."""
        return self.task.num_classes

    @property
    def metrics(self) -> Sequence[Metric]:
        """What models are judged by."""
        return self.task.metrics

    @cached_property
    def packing(self) -> Packing:
        """How samples are stored."""
        return Packing.of(self.task)

    def state_name(self, run: str) -> str:
        """Return what clients keep the state of a run under: it is of use for one model only."""
        return f"{run}: {self.config.task} {self.config.model} {self.config.net.hidden}"

    def holdings(self, contexts: Sequence[Context]) -> list[ClientData]:
        """Return what each client holds (partition or device's data), with true labels if known."""
        if isinstance(contexts, VirtualClients):
            return self.task.all_client_data(contexts.numbers, contexts.total)
        return [client_data(context, self.task) for context in contexts]

    def unscaled(self, context: Context) -> ClientData:
        """Return what a client holds, as it was read."""
        return client_data(context, self.task.unscaled())

    def train(self, batch: ClientBatch) -> Outcomes:
        """Train by the run's objective, and note the metrics."""
        jobs, settings = batch.jobs(), train_settings(self.config, batch.round)
        check_frozen(batch)
        for hook in self.hooks:
            settings = hook.training(settings)
        outcomes = self.trainer.train(jobs, settings, self.objective)
        batch.squares = outcomes.squares
        batch.metrics[NUM_EXAMPLES] = [
            trained if told is None else told
            for trained, told in zip(outcomes.num_examples, batch.counts_for, strict=True)
        ]
        batch.metrics[TRAIN_LOSS] = outcomes.losses
        return outcomes

    def train_plainly(self, jobs: Sequence[Job], settings: TrainSettings) -> Outcomes:
        """Train without what the run's objective adds, as for a question."""
        return self.trainer.train(jobs, settings, Plain(self.config))


def check_frozen(batch: ClientBatch) -> None:
    """Refuse to work on a model whose frozen part is not the server's."""
    expected = batch.told.get(FROZEN)
    if expected is not None and expected != batch.side.trainer.frozen:
        raise SayableError(
            "the parameters that are not trained differ between server and client: both must "
            "build the model from the same weights (task, model, seed, pretrained files)"
        )


def hooks_of(config: RunConfig) -> list[ClientHook]:
    """Return the parts that a run needs on its clients, in the order in which they act."""
    hooks = [load(method.hook)(config) for method in chosen(config.axes()) if method.hook]
    return hooks if config.personalise.keep == "none" else [PersonalParts(config), *hooks]


@lru_cache(maxsize=4)
def task_side(config: RunConfig) -> ClientSide:
    """Return the side of a run config; one per process."""
    return ClientSide(config)


def side_of(context: Context, scale: object = "") -> ClientSide:
    """Return the side of a client's run, by the numbers that inputs are scaled by, if any came."""
    flat, device = context.run_config, context.node_config.get("device")
    own: dict[str, Any] = {"data.scale": scale} if scale else {}
    own |= {} if device is None else {"device": str(device)}
    if isinstance(flat, SharedConfig):
        return (flat.having(tuple(own.items())) if own else flat).once(task_side)
    return task_side(read_config({**flat, **own}))
