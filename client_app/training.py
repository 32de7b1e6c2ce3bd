"""Handlers: train on the client's data, evaluate on its test data, say who it is."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any

from flwr.app import Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ..core.config import RunConfig
from ..core.learning.batches import batch_seed
from ..core.learning.job import Job, Outcome
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import train_settings
from ..core.learning.trainer import Trainer, evaluate, train_one
from ..core.methods.base import load
from ..core.methods.catalogue import methods
from ..core.tasks import load_task
from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES, SECONDS, TRAIN_LOSS
from ..core.wire.records import filled, replies_to, sent_arrays
from .identity import client_config, client_data, client_key, client_task, reply_header
from .model_cache import with_held_models
from .request import (
    ClientHook,
    ClientRequest,
    client_requests,
    hooks_of,
    training_data,
)


@lru_cache(maxsize=4)
def trainer_of(config: RunConfig) -> Trainer:
    """Return the trainer of a run's model; one per process."""
    model = load_task(config.task_spec()).build_model()
    return Trainer(model, config.local.trainer, config.local.threads)


@with_held_models
def train_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Train every client from the model it was sent or holds, on its own data."""
    started = perf_counter()
    config = client_config(contexts[0])
    hooks = hooks_of(config)
    clients = prepare(client_requests(messages, contexts, client_task(contexts[0])), hooks)
    jobs = [request.job() for request in clients]
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
    contents = [
        _train_reply(request, outcome, seconds)
        for request, outcome in zip(clients, outcomes, strict=True)
    ]
    for request in clients:
        request.close()
    return replies_to(messages, contents)


def prepare(clients: list[ClientRequest], hooks: Sequence[ClientHook]) -> list[ClientRequest]:
    """Let each hook have its say in what each client trains on."""
    for hook in hooks:
        for request in clients:
            hook.before(request)
    return clients


def message_arrays(message: Message) -> dict[str, NDArray[Any]]:
    """Return the model that a message carries."""
    return from_record(sent_arrays(message, ARRAYS))


def _train_reply(request: ClientRequest, outcome: Outcome, seconds: float) -> RecordDict:
    content = reply_header(request.context) | request.reply
    if not request.sends_update:
        content[ARRAYS] = to_record(outcome.arrays)
    content[METRICS] = filled(MetricRecord, {**request.metrics, SECONDS: seconds})
    return filled(RecordDict, content)


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
    return train_one(trainer_of(config).model, job, settings, Plain(config)).arrays


def evaluate_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Evaluate the model each client was sent on the client's own test data."""
    task = client_task(contexts[0])
    replies = []
    for message, context in zip(messages, contexts, strict=True):
        data = client_data(context, task).test
        if not len(data):
            raise ValueError(
                f"client {client_key(context)!r} has no test data: set data.client-test-share"
            )
        # After the data: a device knows the model's shape from nothing but its own file.
        model = trainer_of(client_config(context)).model
        accuracy, loss = evaluate(model, _own_model(message, context), data)
        metrics = {NUM_EXAMPLES: len(data), "accuracy": accuracy, "loss": loss}
        content = reply_header(context) | {METRICS: filled(MetricRecord, metrics)}
        replies.append(Message(RecordDict(content), reply_to=message))
    return replies
