"""Handlers: train on the client's data, evaluate on its test data, say who it is."""

import logging
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.config.reading import SharedConfig
from ...core.learning.batches import batch_seed
from ...core.learning.evaluation import evaluate
from ...core.learning.job import Job, Outcome, Outcomes
from ...core.learning.model_arrays import check_trainable
from ...core.learning.objectives.plain import Plain
from ...core.learning.placement import device_or_cpu
from ...core.learning.train_settings import train_settings
from ...core.learning.trainer import Trainer, train_one
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.tasks import Task, load_task
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import (
    ARRAYS,
    CONFIG,
    FROZEN,
    METRICS,
    NUM_EXAMPLES,
    SECONDS,
    TRAIN_LOSS,
)
from ...core.wire.records import entries, filled, record_at, replies_to, sent_arrays
from ...core.wire.tables import Replies, Requests
from ..device.held_models import with_held_models
from ..identity import (
    client_config,
    client_data,
    client_key,
    client_keys,
    client_task,
    reply_header,
)
from ..request import (
    ClientHook,
    ClientRequest,
    all_training_data,
    client_requests,
    hooks_of,
    round_of,
    training_data,
)

_log = logging.getLogger("forager")


@lru_cache(maxsize=4)
def trainer_of(config: RunConfig) -> Trainer:
    """Return the trainer of a run's model, on the device of the run or node; one per process."""
    task = load_task(config.task_spec())
    device, _ = device_or_cpu(config.device)
    model = task.build_model()
    check_trainable(model)
    return Trainer(model.to(device), config.local.trainer, config.local.threads, task.problem)


@with_held_models
def train_clients(
    messages: Sequence[Message], contexts: Sequence[Context]
) -> MutableSequence[Message]:
    """Train every client from the model it was sent or holds, on its own data."""
    started = perf_counter()
    shared = contexts[0].run_config
    if isinstance(messages, Requests) and not messages.own and isinstance(shared, SharedConfig):
        run = shared.once(_Run.of)
        if run.stacks_all:
            return _train_together(run, messages, contexts)
    config = client_config(contexts[0])
    hooks = hooks_of(config)
    clients = prepare(client_requests(messages, contexts, client_task(contexts[0])), hooks)
    jobs = [request.job() for request in clients]
    check_frozen(messages[0], trainer_of(config))
    objective = load(methods("objective")[config.objective].core)(config)
    outcomes = trainer_of(config).train(jobs, train_settings(config, clients[0].round), objective)
    for request, outcome in zip(clients, outcomes, strict=True):
        examples = outcome.num_examples if request.counts_for is None else request.counts_for
        request.metrics = {NUM_EXAMPLES: examples, TRAIN_LOSS: outcome.loss}
    for hook in hooks:
        outcomes = [
            hook.after(request, job, outcome)
            for request, job, outcome in zip(clients, jobs, outcomes, strict=True)
        ]
    seconds = (perf_counter() - started) / len(jobs)
    note = _note(config)
    contents = [
        _train_reply(request, outcome, seconds, note)
        for request, outcome in zip(clients, outcomes, strict=True)
    ]
    for request in clients:
        request.close()
    return replies_to(messages, contents)


@dataclass(frozen=True)
class _Run:
    """What all clients of a run share, found once per process."""

    config: RunConfig
    task: Task
    trainer: Trainer
    note: str
    stacks_all: bool  # whether no method asks anything of a client but to be trained with others

    @classmethod
    def of(cls, config: RunConfig) -> "_Run":
        """Return that of a run config."""
        task, trainer = load_task(config.task_spec()), trainer_of(config)
        alike = trainer.mode == "stack" and not hooks_of(config)
        return cls(config, task, trainer, _note(config), alike)


def _train_together(run: _Run, sent: Requests, contexts: Sequence[Context]) -> Replies:
    """Train clients that were sent the same."""
    started = perf_counter()
    config, asked, server_round = run.config, sent.message, round_of(sent.message)
    check_frozen(asked, run.trainer)
    model, clients = message_arrays(asked), client_keys(contexts)
    data = all_training_data(contexts, run.task)
    jobs = [
        Job(model, samples, batch_seed(config.seed, client, server_round))
        for client, samples in zip(clients, data, strict=True)
    ]
    objective = load(methods("objective")[config.objective].core)(config)
    trained = run.trainer.train(jobs, train_settings(config, server_round), objective)
    outcomes = Outcomes.of(trained)
    metrics: dict[str, list[float]] = {
        NUM_EXAMPLES: outcomes.num_examples,
        TRAIN_LOSS: outcomes.losses,
        SECONDS: [(perf_counter() - started) / len(jobs)] * len(jobs),
    }
    return Replies(
        sent.nodes,
        sent.ids,
        clients,
        metrics,
        {ARRAYS: outcomes.arrays},
        note=run.note,
        envelope=sent.message,
    )


def prepare(clients: list[ClientRequest], hooks: Sequence[ClientHook]) -> list[ClientRequest]:
    """Let each hook decide what each client trains on."""
    for hook in hooks:
        for request in clients:
            hook.before(request)
    return clients


def check_frozen(message: Message, trainer: Trainer) -> None:
    """Refuse to work on a model whose frozen part is not the server's."""
    record = record_at(message.content, CONFIG, ConfigRecord)
    expected = None if record is None else entries(record).get(FROZEN)
    if expected is not None and expected != trainer.frozen:
        raise ValueError(
            "the parameters that are not trained differ between server and client: both must "
            "build the model from the same weights (task, model, seed, pretrained files)"
        )


def message_arrays(message: Message) -> dict[str, NDArray[Any]]:
    """Return the model that a message carries."""
    return from_record(sent_arrays(message, ARRAYS))


def _train_reply(request: ClientRequest, outcome: Outcome, seconds: float, note: str) -> RecordDict:
    content = reply_header(request.context, note) | request.reply
    if not request.sends_update:
        content[ARRAYS] = to_record(outcome.arrays)
    content[METRICS] = filled(MetricRecord, {**request.metrics, SECONDS: seconds})
    return filled(RecordDict, content)


@lru_cache(maxsize=4)
def _note(config: RunConfig) -> str:
    """Return what the server should know of the device: that it is not the one asked for."""
    _, note = device_or_cpu(config.device)
    if note:
        _log.warning(note)
    return note


def _own_model(message: Message, context: Context) -> dict[str, NDArray[Any]]:
    """Return the model that came, fine-tuned on the client's own data if the run says so."""
    config, arrays = client_config(context), message_arrays(message)
    if not config.personalise.epochs:
        return arrays
    job = Job(
        arrays,
        training_data(context, client_task(context)),
        batch_seed(config.seed, client_key(context), 0),
    )
    settings = replace(train_settings(config, 1), epochs=config.personalise.epochs, steps=0)
    trainer = trainer_of(config)
    return train_one(trainer.model, job, settings, Plain(config), trainer.problem).arrays


@with_held_models
def evaluate_clients(
    messages: Sequence[Message], contexts: Sequence[Context]
) -> MutableSequence[Message]:
    """Evaluate the model each client was sent or holds on the client's own test data."""
    task = client_task(contexts[0])
    replies: list[Message] = []
    for message, context in zip(messages, contexts, strict=True):
        data = client_data(context, task).test
        if not len(data):
            raise ValueError(
                f"client {client_key(context)!r} has no test data: set data.client-test-share"
            )
        # After the data: a device knows the model's shape from nothing but its own file.
        trainer = trainer_of(client_config(context))
        check_frozen(message, trainer)
        model = trainer.model
        found = evaluate(model, _own_model(message, context), data, task.problem, task.metrics)
        metrics = {NUM_EXAMPLES: len(data), **found}
        content = reply_header(context) | {METRICS: filled(MetricRecord, metrics)}
        replies.append(Message(RecordDict(content), reply_to=message))
    return replies
