"""The last model that a client was sent, kept so that the next can come as a change.

Clients keep the model of a question; where the run says so (``downlink``), of any message. It is a
cache in Flower's context: a client that has lost it says so and is sent the whole model.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from numpy.typing import NDArray

from ...core.wire.arrays import flat_change, from_record, to_record
from ...core.wire.changes import BASE, CHANGE, LACKS_BASE, TAG, apply_change, tag_of
from ...core.wire.delivery import Delivery
from ...core.wire.envelope import MalformedUpdate
from ...core.wire.keys import ARRAYS, CONFIG, NUM_EXAMPLES
from ...core.wire.records import entries, record_at
from ..batch import ClientBatch
from ..clients import VirtualContext

_log = logging.getLogger("forager")

_MODEL, _NAME = "held-model", "held-model-tag"


@dataclass(frozen=True)
class HeldModel:
    """A model, known by its tag, and where it came as a change also what it was before."""

    tag: str
    record: ArrayRecord = field(compare=False)
    before: ArrayRecord | None = field(default=None, compare=False)

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The model."""
        return from_record(self.record)

    @cached_property
    def difference(self) -> NDArray[np.float32] | None:
        """What has changed, if the model came as a change."""
        return None if self.before is None else flat_change(from_record(self.before), self.arrays)


def received_models(batch: ClientBatch) -> list[HeldModel | None]:
    """Return the model that each message is about; None if it builds on one that is not held."""
    # Clients of one process share most models and changes: each is looked at once.
    done: dict[tuple[object, ...], HeldModel | None] = {}
    models: list[HeldModel | None] = []
    columns = batch.requests.column(CONFIG), batch.requests.column(ARRAYS)
    for row, (config, whole) in enumerate(zip(*columns, strict=True)):
        asked = {} if config is None else entries(config)
        tag, base = str(asked.get(TAG, "")), str(asked.get(BASE, ""))
        if whole is not None:
            if (tag, id(whole)) not in done:
                done[tag, id(whole)] = HeldModel(tag, whole)
            models.append(done[tag, id(whole)])
            continue
        held = _held(batch.contexts[row])
        if held is None or held.tag != (base or tag):
            models.append(None)
        elif not base:
            models.append(held)
        else:
            if (base, tag) not in done:
                done[base, tag] = _changed(held, tag, asked.get(CHANGE))
            models.append(done[base, tag])
    return models


def arrays_of(models: Iterable[HeldModel]) -> list[dict[str, NDArray[Any]]]:
    """Return the arrays of models, one and the same dict for those of one tag."""
    first: dict[str, dict[str, NDArray[Any]]] = {}
    return [
        first.setdefault(model.tag, model.arrays) if model.tag else model.arrays for model in models
    ]


def _changed(held: HeldModel, tag: str, change: object) -> HeldModel | None:
    """Return the model that a change makes of the held one; None if it is not the one meant."""
    try:
        arrays = apply_change(held.arrays, change)
    except MalformedUpdate as error:
        _log.warning("a change of the model that cannot be read: %s", error)
        return None
    if tag_of(arrays) != tag:
        _log.warning("a change of the model whose checksum does not match")
        return None
    return HeldModel(tag, to_record(arrays), held.record)


def hold(model: HeldModel, context: Context) -> None:
    """Keep a model for the next message, if the server gave it a name."""
    if not model.tag:
        return
    if isinstance(context, VirtualContext):
        context.memory[_MODEL] = model  # a checkpoint does not ask for it
        return
    context.state[_MODEL] = model.record
    context.state[_NAME] = ConfigRecord({TAG: model.tag})


def _held(context: Context) -> HeldModel | None:
    if isinstance(context, VirtualContext):
        return context.memory.get(_MODEL)
    record = record_at(context.state, _MODEL, ArrayRecord)
    name = record_at(context.state, _NAME, ConfigRecord)
    return None if record is None or name is None else HeldModel(str(name[TAG]), record)


def with_held_models(
    handle: Callable[[ClientBatch], Iterable[Message]],
) -> Callable[[ClientBatch], Delivery]:
    """Return a handler for messages that may name a model, to be kept or in place of carrying it.

    Clients that lack it say so, and are sent it. A model is kept once the handler has succeeded.
    """

    @wraps(handle)
    def handle_all(batch: ClientBatch) -> Delivery:
        if not _names_models(batch):
            return Delivery.of(handle(batch))
        models = received_models(batch)
        able = [row for row, model in enumerate(models) if model is not None]
        lacking = [row for row, model in enumerate(models) if model is None]
        done = Delivery([], [])
        if able:
            some = batch.select(able) if lacking else batch
            known = [model for model in models if model is not None]
            some.held, some.models = known, arrays_of(known)
            done = Delivery.of(handle(some))
            for row, model in zip(able, known, strict=True):
                hold(model, batch.contexts[row])
        if lacking:
            none = {NUM_EXAMPLES: [1] * len(lacking), LACKS_BASE: [1] * len(lacking)}
            done.tables.append(batch.select(lacking).replies(none))
        return done

    return handle_all


def _names_models(batch: ClientBatch) -> bool:
    if CONFIG not in batch.requests.own:
        return TAG in batch.told
    configs = batch.requests.own[CONFIG]
    return any(config is not None and TAG in entries(config) for config in configs)
