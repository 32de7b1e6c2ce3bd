"""Handlers of what clustered learning asks before it groups clients.

- ``query.losses``: the loss of each of several models on the client's training data (IFCA).
- ``query.update``: the model after some steps of local training, which counts for nothing else
  (FlexCFL's pretraining, FL+HC's one round with everybody).
"""

from collections.abc import Sequence
from dataclasses import replace

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from ...core.learning.evaluation import mean_loss
from ...core.learning.objectives.plain import Plain
from ...core.learning.train_settings import train_settings
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import ARRAYS, LOSSES, METRICS, NUM_EXAMPLES, STEPS
from ...core.wire.records import entries, filled, replies_to
from ..identity import client_config, client_task, reply_header
from ..request import client_requests, hooks_of, message_config, training_data
from .training import prepare, trainer_of


def answer_losses(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Report the loss of each model in a message, in the order of their names."""
    contents = [
        _losses(message, context) for message, context in zip(messages, contexts, strict=True)
    ]
    return replies_to(messages, contents)


def _losses(message: Message, context: Context) -> RecordDict:
    data = training_data(context, client_task(context))
    trainer = trainer_of(client_config(context))
    records = {n: r for n, r in entries(message.content).items() if isinstance(r, ArrayRecord)}
    losses = [
        mean_loss(trainer.model, from_record(records[name]), data, trainer.problem)
        for name in sorted(records)
    ]
    metrics = filled(MetricRecord, {NUM_EXAMPLES: len(data), LOSSES: losses})
    return filled(RecordDict, reply_header(context) | {METRICS: metrics})


def answer_updates(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Train for as many steps as a message says (0: as in a round) and send the model back."""
    config = client_config(contexts[0])
    hooks = [hook for hook in hooks_of(config) if hook.chooses_data]
    clients = prepare(client_requests(messages, contexts, client_task(contexts[0])), hooks)
    steps = int(str(message_config(messages[0])[STEPS]))
    settings = train_settings(config, clients[0].round)
    settings = replace(settings, steps=steps) if steps else settings
    outcomes = trainer_of(config).train([v.job() for v in clients], settings, Plain(config))
    contents = []
    for request, outcome in zip(clients, outcomes, strict=True):
        metrics = filled(MetricRecord, {NUM_EXAMPLES: outcome.num_examples})
        model = {ARRAYS: to_record(outcome.arrays), METRICS: metrics}
        contents.append(filled(RecordDict, reply_header(request.context) | model))
        request.close()
    return replies_to(messages, contents)
