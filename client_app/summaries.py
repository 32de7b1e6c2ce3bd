"""Handler of ``query.summary``: answer with what a selector wants to know, one number if possible.

- ``similarity``: the client trains on a few mini-batches and compares this proxy of its update with
  the last change of the global model, by CosAge's power-norm cosine (eq. 7).
- ``loss``: the loss of the global model on the client's training data.
- ``histogram``: how many samples of each class it holds. This is the truth that an oracle uses; it
  is answered only in simulation, where the data are the experimenter's own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict

from client_app.identity import client_config, client_data, client_task
from client_app.objectives.plain import Plain
from client_app.settings import summary_settings
from client_app.similarity import flat_change, similarity
from client_app.trainer import evaluate
from client_app.training import message_arrays, prepare, signed, trainer_of
from client_app.visit import message_config, parts_of, training_data, visits
from server_app.config import RunConfig
from tasks import Task
from wire.keys import HISTOGRAM, LOSS, METRICS, NUM_EXAMPLES, SIMILARITY, WANTS
from wire.records import filled


def summarise_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Answer what each client is asked; all messages of one call ask the same."""
    wants = str(message_config(messages[0])[WANTS])
    config, task = client_config(contexts[0]), client_task(contexts[0])
    if wants == SIMILARITY:
        values: Sequence[Any] = _similarities(messages, contexts, config, task)
    elif wants == LOSS:
        values = [_loss(m, c, config, task) for m, c in zip(messages, contexts, strict=True)]
    elif wants == HISTOGRAM:
        values = [_histogram(context, task) for context in contexts]
    else:
        raise ValueError(f"{WANTS} = {wants!r}: expected {SIMILARITY}, {LOSS} or {HISTOGRAM}")
    return [
        _reply(message, context, task, {wants: value})
        for message, context, value in zip(messages, contexts, values, strict=True)
    ]


def _similarities(
    messages: Sequence[Message], contexts: Sequence[Context], config: RunConfig, task: Task
) -> list[float]:
    parts = [part for part in parts_of(config) if part.chooses_data]
    clients = prepare(visits(messages, contexts, task), parts)
    jobs = [visit.job() for visit in clients]
    # Without what objectives carry (control variates, ...): a proxy is only compared.
    proxies = trainer_of(config).train(
        jobs, summary_settings(config, clients[0].round), Plain(config)
    )
    return [
        similarity(message_config(message), flat_change(job.arrays, proxy.arrays), config)
        for message, job, proxy in zip(messages, jobs, proxies, strict=True)
    ]


def _loss(message: Message, context: Context, config: RunConfig, task: Task) -> float:
    data = training_data(context, task)  # first: on a device it tells the shape of the model
    return evaluate(trainer_of(config).model, message_arrays(message), data)[1]


def _histogram(context: Context, task: Task) -> list[int]:
    if "partition-id" not in context.node_config:
        raise ValueError("a device does not tell how many samples of each class it holds")
    labels = client_data(context, task).true_labels
    return torch.bincount(labels, minlength=task.num_classes).tolist()


def _reply(message: Message, context: Context, task: Task, values: dict[str, Any]) -> Message:
    examples = len(client_data(context, task).train)
    metrics = filled(MetricRecord, {NUM_EXAMPLES: examples, **values})
    return Message(filled(RecordDict, signed(context) | {METRICS: metrics}), reply_to=message)
