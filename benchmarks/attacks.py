"""Hostile clients for ``benchmarks.security``: every fifth client of a run on the local engine.

An attack is a context manager that puts itself between the ClientApp and the server for as long as
it is open.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord

from ..client_app import app
from ..client_app.batch import ClientBatch
from ..client_app.device.held_models import with_held_models
from ..core.tasks import ClientData, Split, Task
from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import (
    AFFINITY,
    ARRAYS,
    ASK_AFFINITY,
    LOSS,
    METRICS,
    NUM_EXAMPLES,
    SIMILARITY,
    SUMMARY,
    TRAIN_LOSS,
)
from ..core.wire.records import record_at, sent_arrays

Arrays = dict[str, Any]
Spoil = Callable[[Arrays, Message], None]  # changes a reply, given the model that was sent
Attack = Callable[[], Any]  # returns a context manager

EVERY = 5  # one client in this many is hostile


def is_hostile(key: str) -> bool:
    """Tell whether a client is one of the attackers."""
    return int(key) % EVERY == 0


@contextmanager
def spoiling(kind: str, spoil: Spoil) -> Iterator[None]:
    """Let attackers change their replies to one kind of message."""
    honest = app.HANDLERS[kind]

    def handle(batch: ClientBatch) -> list[Message]:
        replies = list(honest(batch))
        for row, reply in enumerate(replies):
            if is_hostile(batch.keys[row]) and not reply.has_error():
                spoil(batch.models[row] if kind == "train" else {}, reply)
        return replies

    # A client that was asked first is sent no model to train from: it holds that already.
    app.HANDLERS[kind] = with_held_models(handle) if kind == "train" else handle
    try:
        yield
    finally:
        app.HANDLERS[kind] = honest


def _sending(change: Callable[[Arrays, Arrays], Arrays]) -> Spoil:
    """Return what replaces the model of a reply, given the one before training and after it."""

    def spoil(before: Arrays, reply: Message) -> None:
        after = from_record(sent_arrays(reply, ARRAYS))
        sent = change(before, after)
        dtypes = {name: array.dtype for name, array in after.items()}
        reply.content[ARRAYS] = to_record(
            {n: np.asarray(a, dtype=dtypes[n]) for n, a in sent.items()}
        )

    return spoil


def _scaled(factor: float) -> Spoil:
    return _sending(lambda old, new: {n: old[n] + factor * (new[n] - old[n]) for n in old})


def _noise(before: Arrays, after: Arrays) -> Arrays:
    seed = zlib.crc32(b"".join(array.tobytes() for array in after.values()))
    rng = np.random.default_rng(seed)
    changes = {n: after[n] - before[n] for n in before}
    return {
        n: before[n] + rng.normal(scale=c.std() + 1e-6, size=c.shape) for n, c in changes.items()
    }


def _not_a_number(before: Arrays, after: Arrays) -> Arrays:
    return {name: np.full_like(array, np.nan) for name, array in after.items()}


def _lie_about_size(before: Arrays, reply: Message) -> None:
    _scaled(-1)(before, reply)
    metrics = reply.content.metric_records[METRICS]
    metrics[NUM_EXAMPLES] = 100 * int(float(str(metrics[NUM_EXAMPLES])))


def _replay() -> Any:
    """Answer every round with what was trained in the first."""
    first: dict[int, Any] = {}

    def spoil(before: Arrays, reply: Message) -> None:
        recorded = first.setdefault(reply.metadata.src_node_id, reply.content[ARRAYS])
        reply.content[ARRAYS] = recorded

    return spoiling("train", spoil)


@contextmanager
def poisoned_labels() -> Iterator[None]:
    """Let attackers train on labels that are turned round, all in the same way."""
    honest = Task.all_client_data

    def turned(task: Task, data: ClientData) -> ClientData:
        labels = task.num_classes - 1 - data.train.y
        return replace(data, train=Split(data.train.x, labels))

    def all_client_data(self: Task, partitions: Iterable[int], of: int) -> list[ClientData]:
        numbers = list(partitions)
        rows = zip(numbers, honest(self, numbers, of), strict=True)
        return [turned(self, own) if is_hostile(str(n)) else own for n, own in rows]

    Task.all_client_data = all_client_data  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Task.all_client_data = honest  # type: ignore[method-assign]


def on_training(spoil: Spoil) -> Attack:
    """Return the attack that changes replies to training messages."""
    return lambda: spoiling("train", spoil)


UPDATES: dict[str, Attack | None] = {
    "none": None,
    "sign flipped": on_training(_scaled(-1)),
    "flipped and boosted four times": on_training(_scaled(-4)),
    "flipped and boosted ten times": on_training(_scaled(-10)),
    "flipped and boosted a million times": on_training(_scaled(-1e6)),
    "noise as large as the update": on_training(_sending(_noise)),
    "not a number": on_training(_sending(_not_a_number)),
    "flipped, and claims 100 times the data": on_training(_lie_about_size),
    "labels turned round": poisoned_labels,
    "replays its first reply": _replay,
}


@contextmanager
def lying_about(wants: str) -> Iterator[None]:
    """Let attackers flip their updates and say whatever gets them chosen."""

    def in_training(before: Arrays, reply: Message) -> None:
        _scaled(-1)(before, reply)
        metrics = reply.content.metric_records[METRICS]
        metrics[TRAIN_LOSS] = 1e6

    def when_asked(before: Arrays, reply: Message) -> None:
        record = record_at(reply.content, METRICS, MetricRecord)
        if record is not None and wants in record:
            record[wants] = {SIMILARITY: -1.0, LOSS: 1e6}[wants]

    with spoiling("train", in_training), spoiling(SUMMARY, when_asked):
        yield


def _fake_affinity(before: Arrays, reply: Message) -> None:
    """Claim to fit best where one fits worst; the update itself is honest."""
    told = record_at(reply.content, AFFINITY, ConfigRecord)
    if told is None:
        return
    rewards = [float(reward) for reward in told["rewards"]]  # type: ignore[union-attr]
    worst = int(np.argmin(rewards))
    rewards[worst] = 1.0
    indices = [-1] * len(rewards)
    indices[worst] = 0
    told["rewards"], told["indices"], told["known"] = rewards, indices, [True] * len(rewards)


@contextmanager
def fake_affinity() -> Iterator[None]:
    """Let attackers fake Auxo's affinity records, asked before a round or sent after it."""
    with spoiling(ASK_AFFINITY, _fake_affinity), spoiling("train", _fake_affinity):
        yield
