"""Handler of ``query.summary``: answer with what a selector wants to know, one number if possible.

- ``similarity``: the client trains on a few mini-batches and compares this proxy of its update with
  the last change of the global model, by CosAge's power-norm cosine (eq. 7).
- ``loss``: the loss of the global model on the client's training data.
- ``histogram``: how many samples of each class it holds. This is the truth that an oracle uses; it
  is answered only in simulation, where the data are the experimenter's own.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict

from ...core.config import RunConfig
from ...core.learning.evaluation import mean_loss
from ...core.learning.objectives.plain import Plain
from ...core.learning.train_settings import summary_settings
from ...core.methods.selector import Summary
from ...core.tasks import Task, load_task
from ...core.wire.arrays import flat_change, from_record
from ...core.wire.changes import LACKS_BASE
from ...core.wire.keys import HISTOGRAM, LOSS, METRICS, NUM_EXAMPLES, REFERENCE, SIMILARITY, WANTS
from ...core.wire.records import filled, replies_to
from ...selectors.similarities.power_norm import Reference
from ..device.held_models import HeldModel, hold, received_models
from ..hooks.similarity import as_reference, similarity
from ..identity import client_config, client_data, reply_header
from ..request import ClientRequest, client_requests, hooks_of, message_config
from .training import prepare, trainer_of


def summarise_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Answer what each client is asked; all messages of one call ask the same."""
    wants = str(message_config(messages[0])[WANTS])
    config = client_config(contexts[0])
    task = _task_of(config)
    if wants == HISTOGRAM:
        values: list[Any] = [_histogram(context, task) for context in contexts]
    elif wants in (SIMILARITY, LOSS):
        values = _about_models(messages, contexts, wants, config, task)
    else:
        raise ValueError(f"{WANTS} = {wants!r}: expected {SIMILARITY}, {LOSS} or {HISTOGRAM}")
    contents = [
        _content(context, task, {LACKS_BASE: 1} if value is None else {wants: value})
        for context, value in zip(contexts, values, strict=True)
    ]
    return replies_to(messages, contents)


@lru_cache(maxsize=4)
def _task_of(config: RunConfig) -> Task:
    """Return the task of a run; finding out which one it is takes longer than a small client."""
    return load_task(config.task_spec())


def _about_models(
    messages: Sequence[Message],
    contexts: Sequence[Context],
    wants: str,
    config: RunConfig,
    task: Task,
) -> list[float | None]:
    """Return what each client finds; None where it lacks the model that its own builds on."""
    models = received_models(messages, contexts)
    able = [i for i, model in enumerate(models) if model is not None]
    clients = client_requests([messages[i] for i in able], [contexts[i] for i in able], task)
    values: list[float | None] = [None] * len(messages)
    known = [model for model in models if model is not None]
    for request, model in zip(clients, known, strict=True):
        request.arrays = from_record(model.record)
    found = _losses(clients, config) if wants == LOSS else _similarities(clients, known, config)
    for request in clients:
        request.abandon()  # a question changes nothing that the client keeps
    for i, model, value in zip(able, known, found, strict=True):
        values[i] = value
        hold(model, contexts[i])
    return values


def _similarities(
    clients: list[ClientRequest], models: Sequence[HeldModel], config: RunConfig
) -> list[float]:
    if not clients:
        return []
    hooks = [hook for hook in hooks_of(config) if hook.chooses_data]
    jobs = [request.job() for request in prepare(clients, hooks)]
    # Without what objectives carry (control variates, ...): a proxy is only compared.
    proxies = trainer_of(config).train(
        jobs, summary_settings(config, clients[0].round), Plain(config)
    )
    changes = [
        flat_change(job.arrays, proxy.arrays) for job, proxy in zip(jobs, proxies, strict=True)
    ]
    return [
        similarity(message_config(request.message), change, config)
        if model.difference is None or REFERENCE in message_config(request.message)
        else float(_last_change(model, config).similarity(change))
        for request, model, change in zip(clients, models, changes, strict=True)
    ]


@lru_cache(maxsize=1)
def _last_change(model: HeldModel, config: RunConfig) -> Reference:
    """Return how a model came about, once for all clients of a process that were sent the same."""
    assert model.difference is not None
    return as_reference(model.difference, config[Summary])


def _losses(clients: list[ClientRequest], config: RunConfig) -> list[float]:
    prepare(clients, [hook for hook in hooks_of(config) if hook.holds_data])
    data = [request.data for request in clients]
    # After the data: a device knows the model's shape from nothing but its own file.
    model = trainer_of(config).model
    return [
        mean_loss(model, request.arrays, own, request.task.problem)
        for request, own in zip(clients, data, strict=True)
    ]


def _histogram(context: Context, task: Task) -> list[int]:
    if "partition-id" not in context.node_config:
        raise ValueError("a device does not report how many samples of each class it holds")
    labels = client_data(context, task).true_labels
    return torch.bincount(labels, minlength=task.num_classes).tolist()


def _content(context: Context, task: Task, values: dict[str, Any]) -> RecordDict:
    examples = len(client_data(context, task).train)
    metrics = filled(MetricRecord, {NUM_EXAMPLES: examples, **values})
    return filled(RecordDict, reply_header(context) | {METRICS: metrics})
