"""The last model that a client was asked about, kept so that the next can come as a change.

A client that is then chosen gets no model at all, only the name of the one to train from.

It is a cache: a client that has lost it says so and is sent the whole model. It is in Flower's
context, not in the client's own state: it need not outlive the SuperNode.
"""

import copy
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ..core.wire.arrays import from_record, to_record
from ..core.wire.broadcast import Broadcast
from ..core.wire.changes import BASE, CHANGE, LACKS_BASE, TAG, apply_change
from ..core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from ..core.wire.records import attach, entries, filled, record_at, replies_to
from .identity import reply_header
from .request import message_config

Handler = Callable[[Sequence[Message], Sequence[Context]], MutableSequence[Message]]

_MODEL, _NAME = "held-model", "held-model-tag"


@dataclass(frozen=True)
class HeldModel:
    """A model, known by its tag, and where it came as a change also what has changed."""

    tag: str
    record: ArrayRecord = field(compare=False)
    difference: NDArray[np.float32] | None = field(default=None, compare=False)


def received_model(message: Message, context: Context) -> HeldModel | None:
    """Return the model that a message is about, or None if it builds on one that is not held."""
    asked = entries(message_config(message))
    whole = record_at(message.content, ARRAYS, ArrayRecord)
    if whole is not None:
        return HeldModel(str(asked.get(TAG, "")), whole)
    held = _held(context)
    if held is None or held.tag != asked.get(BASE):
        return None
    return _changed(held, str(asked[TAG]), *asked[CHANGE])


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
    """Return a handler for messages that may name a held model instead of carrying one.

    Clients that do not hold it say so, and are sent the message again with the model in it.
    """

    @wraps(handle)
    def handle_all(
        messages: Sequence[Message], contexts: Sequence[Context]
    ) -> MutableSequence[Message]:
        if isinstance(messages, Broadcast) and ARRAYS in entries(messages.content):
            return handle(messages, contexts)
        complete = [_with_model(m, c) for m, c in zip(messages, contexts, strict=True)]
        able = [(m, c) for m, c in zip(complete, contexts, strict=True) if m is not None]
        done = iter(handle(*zip(*able, strict=True)) if able else ())
        return [
            _lacking(message, context) if whole is None else next(done)
            for message, whole, context in zip(messages, complete, contexts, strict=True)
        ]

    return handle_all


def _with_model(message: Message, context: Context) -> Message | None:
    """Return a message with its model in it, or None if that is neither sent nor held."""
    tag = entries(message_config(message)).get(TAG)
    if ARRAYS in entries(message.content) or tag is None:
        return message
    held = _held(context)
    if held is None or held.tag != tag:
        return None
    whole = copy.copy(message)  # what was sent stays as it is
    attach(whole, ARRAYS, held.record)
    return whole


def _lacking(message: Message, context: Context) -> Message:
    metrics = filled(MetricRecord, {NUM_EXAMPLES: 1, LACKS_BASE: 1})
    content = filled(RecordDict, reply_header(context) | {METRICS: metrics})
    return replies_to([message], [content])[0]


@lru_cache(maxsize=1)
def _changed(held: HeldModel, tag: str, *change: Any) -> HeldModel:
    """Apply a change once for all clients of a process that hold the same model."""
    arrays, difference = apply_change(from_record(held.record), list(change))
    return HeldModel(tag, to_record(arrays), difference)
