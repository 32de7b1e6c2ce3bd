"""The last model that a client was asked about, kept so that the next need not come whole.

It is a cache: a client that has lost it says so and is sent the whole model. It lies in Flower's
context, not in the client's own state: it need not outlive the SuperNode.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from numpy.typing import NDArray

from ..core.wire.arrays import from_record, to_record
from ..core.wire.changes import BASE, CHANGE, TAG, apply_change
from ..core.wire.keys import ARRAYS
from ..core.wire.records import entries, record_at
from .request import message_config

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


@lru_cache(maxsize=1)
def _changed(held: HeldModel, tag: str, *change: Any) -> HeldModel:
    """Apply a change once for all clients of a process that hold the same model."""
    arrays, difference = apply_change(from_record(held.record), list(change))
    return HeldModel(tag, to_record(arrays), difference)
