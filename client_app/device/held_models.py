"""The last model that a client was sent, kept so that the next can come as a change.

Clients keep the model of a question; where the run says so (``downlink``), also that of a training
or an evaluation. A message may then name the model that is held, or carry what has changed since,
and the checksum of what must come of it.

It is a cache: a client that has lost it says so and is sent the whole model. It is in Flower's
context, not in the client's own state: it need not outlive the SuperNode.
"""

import copy
import logging
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ...core.wire.arrays import flat_change, from_record, to_record
from ...core.wire.changes import BASE, CHANGE, LACKS_BASE, TAG, apply_change, tag_of
from ...core.wire.keys import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES
from ...core.wire.records import attach, entries, filled, record_at, replies_to
from ...core.wire.subsets import MalformedUpdate
from ...core.wire.tables import Requests
from ..identity import reply_header

_log = logging.getLogger("forager")

Handler = Callable[[Sequence[Message], Sequence[Context]], MutableSequence[Message]]

_MODEL, _NAME = "held-model", "held-model-tag"


@dataclass(frozen=True)
class HeldModel:
    """A model, known by its tag, and where it came as a change also what it was before."""

    tag: str
    record: ArrayRecord = field(compare=False)
    before: ArrayRecord | None = field(default=None, compare=False)

    @cached_property
    def difference(self) -> NDArray[np.float32] | None:
        """What has changed, if the model came as a change."""
        if self.before is None:
            return None
        return flat_change(from_record(self.before), from_record(self.record))


def received_models(
    messages: Sequence[Message], contexts: Sequence[Context]
) -> list[HeldModel | None]:
    """Return the model that each message is about; None if it builds on one that is not held."""
    # Clients of one process share most changes: each is applied once.
    done: dict[tuple[str, ...], HeldModel | None] = {}
    models: list[HeldModel | None] = []
    for message, context in zip(messages, contexts, strict=True):
        asked = _config(message)
        tag, base = str(asked.get(TAG, "")), str(asked.get(BASE, ""))
        whole = record_at(message.content, ARRAYS, ArrayRecord)
        held = _held(context) if whole is None else None
        if whole is not None:
            models.append(HeldModel(tag, whole))
        elif held is None or held.tag != (base or tag):
            models.append(None)
        elif not base:
            models.append(held)
        else:
            if (base, tag) not in done:
                done[base, tag] = _changed(held, tag, asked.get(CHANGE))
            models.append(done[base, tag])
    return models


def _changed(held: HeldModel, tag: str, change: object) -> HeldModel | None:
    """Return the model that a change makes of the held one; None if it is not the one meant."""
    try:
        arrays = apply_change(from_record(held.record), change)
    except MalformedUpdate as error:
        _log.warning("a change of the model that cannot be read: %s", error)
        return None
    if tag_of(arrays) != tag:
        _log.warning("a change of the model whose checksum does not match")
        return None
    return HeldModel(tag, to_record(arrays), held.record)


def hold(model: HeldModel, context: Context) -> None:
    """Keep a model for the next message, if the server gave it a name."""
    if model.tag:
        context.state[_MODEL] = model.record
        context.state[_NAME] = ConfigRecord({TAG: model.tag})


def _held(context: Context) -> HeldModel | None:
    record = record_at(context.state, _MODEL, ArrayRecord)
    name = record_at(context.state, _NAME, ConfigRecord)
    return None if record is None or name is None else HeldModel(str(name[TAG]), record)


def with_held_models(handle: Handler) -> Handler:
    """Return a handler for messages that may name a model, to be kept or in place of carrying it.

    Clients that do not hold what is needed say so, and are sent the message again with the model in
    it. A model is kept once the handler has succeeded.
    """

    @wraps(handle)
    def handle_all(
        messages: Sequence[Message], contexts: Sequence[Context]
    ) -> MutableSequence[Message]:
        if not _any_names_a_model(messages):
            return handle(messages, contexts)
        models = received_models(messages, contexts)
        known = [(m, c, h) for m, c, h in zip(messages, contexts, models, strict=True) if h]
        done: MutableSequence[Message] = []
        if known:
            asked, able, held = zip(*known, strict=True)
            done = handle([_with(m, h) for m, h in zip(asked, held, strict=True)], able)
            for model, context in zip(held, able, strict=True):
                hold(model, context)
        replies = iter(done)
        return [
            _lacking(message, context) if model is None else next(replies)
            for message, model, context in zip(messages, models, contexts, strict=True)
        ]

    return handle_all


def _any_names_a_model(messages: Sequence[Message]) -> bool:
    shared = isinstance(messages, Requests) and CONFIG not in messages.own
    asked = [messages.message] if shared else messages
    return any(TAG in _config(message) for message in asked)


def _config(message: Message) -> dict[str, object]:
    record = record_at(message.content, CONFIG, ConfigRecord)
    return {} if record is None else entries(record)


def _with(message: Message, model: HeldModel) -> Message:
    """Return a message with its model in it."""
    if ARRAYS in entries(message.content):
        return message
    whole = copy.copy(message)  # what was sent stays as it is
    attach(whole, ARRAYS, model.record)
    return whole


def _lacking(message: Message, context: Context) -> Message:
    metrics = filled(MetricRecord, {NUM_EXAMPLES: 1, LACKS_BASE: 1})
    content = filled(RecordDict, reply_header(context) | {METRICS: metrics})
    return replies_to([message], [content])[0]
