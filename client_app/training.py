"""Handlers: train on the client's data, evaluate on its test data, say who it is."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ..core.config.run_config import RunConfig
from ..core.learning.batches import batch_seed
from ..core.learning.job import Job, Outcome
from ..core.learning.objectives.plain import Plain
from ..core.learning.train_settings import train_settings
from ..core.learning.trainer import Trainer, evaluate, train_one
from ..core.methods.registry import resolve
from ..core.tasks import load_task
from ..core.wire import sparse
from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import (
    ARRAYS,
    DENSITY,
    METRICS,
    NUM_EXAMPLES,
    PAYLOAD,
    REFERENCE,
    SECONDS,
    SIMILARITY,
    SPARSE,
    TRAIN_LOSS,
    VALUES,
    WANTS,
)
from ..core.wire.records import entries, filled, replies_to, sent_arrays
from .identity import client_config, client_data, client_key, client_task, reply_header
from .request import (
    ClientHook,
    ClientRequest,
    client_requests,
    hooks_of,
    message_config,
    training_data,
)
from .similarity import flat_change, similarity


@lru_cache(maxsize=4)
def trainer_of(config: RunConfig) -> Trainer:
    """Return the trainer of a run's model; one per process."""
    model = load_task(config.task_spec()).build_model()
    return Trainer(model, config.local.trainer, config.local.threads)


def train_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Train every client from the model it was sent, on its own data."""
    started = perf_counter()
    config = client_config(contexts[0])
    parts = hooks_of(config)
    clients = prepare(client_requests(messages, contexts, client_task(contexts[0])), parts)
    jobs = [request.job() for request in clients]
    objective = resolve("objective", config.objective)(config)
    outcomes = trainer_of(config).train(jobs, train_settings(config, clients[0].round), objective)
    for part in parts:
        outcomes = [
            part.after(request, job, outcome)
            for request, job, outcome in zip(clients, jobs, outcomes, strict=True)
        ]
    seconds = (perf_counter() - started) / len(jobs)
    contents = [
        _train_reply(request, job, outcome, seconds)
        for request, job, outcome in zip(clients, jobs, outcomes, strict=True)
    ]
    for request in clients:
        request.close()
    return replies_to(messages, contents)


def prepare(clients: list[ClientRequest], parts: Sequence[ClientHook]) -> list[ClientRequest]:
    """Let each part have its say in what each client trains on."""
    for part in parts:
        for request in clients:
            part.before(request)
    return clients


def message_arrays(message: Message) -> dict[str, NDArray[Any]]:
    """Return the model that a message carries."""
    return from_record(sent_arrays(message, ARRAYS))


def _train_reply(request: ClientRequest, job: Job, outcome: Outcome, seconds: float) -> RecordDict:
    examples = outcome.num_examples if request.counts_for is None else request.counts_for
    metrics = {NUM_EXAMPLES: examples, SECONDS: seconds}
    if request.config.privacy != "local-dp":  # a loss would tell of the data what the noise hides
        metrics[TRAIN_LOSS] = outcome.loss
    content = reply_header(request.context) | request.reply
    config = message_config(request.message)
    asked = entries(config)
    if asked.get(WANTS) == SIMILARITY and REFERENCE in asked:
        change = flat_change(job.arrays, outcome.arrays)
        metrics[SIMILARITY] = similarity(config, change, request.config)
    if DENSITY in asked:
        change = flat_change(job.arrays, outcome.arrays)
        payload = _sparse_payload(change, request, float(asked[DENSITY]), str(asked[VALUES]))
        content[SPARSE] = ConfigRecord({PAYLOAD: payload})
    else:
        content[ARRAYS] = to_record(outcome.arrays)
    content[METRICS] = filled(MetricRecord, metrics)
    return filled(RecordDict, content)


def _sparse_payload(
    change: NDArray[np.float32], request: ClientRequest, density: float, values: str
) -> bytes:
    """Return the largest changes; with error feedback, what is left out is added next time."""
    k = max(1, round(density * change.size))
    if not request.config.top_k.error_feedback:
        return sparse.encode(change, k, values)
    residual = request.state.get("residual")
    if residual is not None and residual.size == change.size:
        change = change + residual
    payload = sparse.encode(change, k, values)
    request.state["residual"] = change - sparse.decode(payload, size=change.size)
    return payload


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
