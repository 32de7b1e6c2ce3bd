"""Handlers: train on the client's data, evaluate on its test data, say who it is."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from client_app.batches import batch_seed
from client_app.identity import client_config, client_data, client_key, client_task
from client_app.job import Job, Outcome
from client_app.settings import train_settings
from client_app.trainer import Trainer, evaluate
from server_app.config import RunConfig
from strategies.registry import resolve
from tasks import Task, load_task
from wire import sparse
from wire.arrays import from_record, to_record
from wire.keys import (
    ARRAYS,
    CLIENT,
    CLIENT_KEY,
    CONFIG,
    DENSITY,
    METRICS,
    NUM_EXAMPLES,
    PAYLOAD,
    ROUND,
    SECONDS,
    SPARSE,
    TRAIN_LOSS,
    VALUES,
)
from wire.records import filled, record_at, sent_arrays


@lru_cache(maxsize=4)
def _trainer(config: RunConfig) -> Trainer:
    model = load_task(config.task_spec()).build_model()
    return Trainer(model, config.local.trainer, config.local.threads)


def train_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Train every client from the model it was sent, on its own data."""
    started = perf_counter()
    config = client_config(contexts[0])
    server_round = int(str(_config(messages[0])[ROUND]))
    task = client_task(contexts[0])
    jobs = [
        _job(message, context, task, config.seed, server_round)
        for message, context in zip(messages, contexts, strict=True)
    ]
    objective = resolve("objective", config.objective)(config)
    outcomes = _trainer(config).train(jobs, train_settings(config, server_round), objective)
    seconds = (perf_counter() - started) / len(jobs)
    return [
        _train_reply(message, context, job, outcome, seconds)
        for message, context, job, outcome in zip(messages, contexts, jobs, outcomes, strict=True)
    ]


def _job(message: Message, context: Context, task: Task, seed: int, server_round: int) -> Job:
    data = client_data(context, task).train
    if not len(data):
        raise ValueError(f"client {client_key(context)!r} has no training data")
    arrays = _arrays(message)
    return Job(arrays, data, batch_seed(seed, client_key(context), server_round))


def _arrays(message: Message) -> dict[str, NDArray[Any]]:
    return from_record(sent_arrays(message, ARRAYS))


def _config(message: Message) -> ConfigRecord:
    record = record_at(message.content, CONFIG, ConfigRecord)
    if record is None:
        raise ValueError(f"a {message.metadata.message_type} message needs a config record")
    return record


def _train_reply(
    message: Message, context: Context, job: Job, outcome: Outcome, seconds: float
) -> Message:
    metrics = {NUM_EXAMPLES: outcome.num_examples, TRAIN_LOSS: outcome.loss, SECONDS: seconds}
    content = _signed(context) | {METRICS: filled(MetricRecord, metrics)}
    config = _config(message)
    if DENSITY in config:
        density, values = float(str(config[DENSITY])), str(config[VALUES])
        payload = sparse_update(job.arrays, outcome.arrays, density, values)
        content[SPARSE] = ConfigRecord({PAYLOAD: payload})
    else:
        content[ARRAYS] = to_record(outcome.arrays)
    return Message(filled(RecordDict, content), reply_to=message)


def sparse_update(
    before: Mapping[str, NDArray[Any]],
    after: Mapping[str, NDArray[Any]],
    density: float,
    values: str,
) -> bytes:
    """Return the largest changes of the float arrays, flattened in order, as bytes."""
    changes = [
        (after[name] - before[name]).ravel() for name in before if before[name].dtype.kind == "f"
    ]
    flat = np.concatenate(changes).astype(np.float32, copy=False)
    return sparse.encode(flat, max(1, round(density * flat.size)), values)


def _signed(context: Context) -> dict[str, Any]:
    """Return the beginnings of a reply: who answers."""
    return {CLIENT: filled(ConfigRecord, {CLIENT_KEY: client_key(context)})}


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
        model = _trainer(client_config(context)).model
        accuracy, loss = evaluate(model, _arrays(message), data)
        metrics = {NUM_EXAMPLES: len(data), "accuracy": accuracy, "loss": loss}
        content = _signed(context) | {METRICS: filled(MetricRecord, metrics)}
        replies.append(Message(RecordDict(content), reply_to=message))
    return replies


def identify_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Say who each client is."""
    return [
        Message(RecordDict(_signed(context)), reply_to=message)
        for message, context in zip(messages, contexts, strict=True)
    ]
