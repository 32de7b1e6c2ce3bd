"""The base of all layers: a Flower ``Strategy`` that holds another and delegates to it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.wire.arrays import from_record, to_record
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ...core.wire.requests import Requests
from ...selectors.stateful import restore, saved
from ..federation.federation import Federation

Models = dict[str, tuple[ArrayRecord, float]]
Outcome = tuple[ArrayRecord | None, MetricRecord | None]  # a new model and the metrics of a round


class RunOver(Exception):
    """No layer wants another round, and the run is complete; the text says why."""


class Layer(Strategy):
    """A strategy around another one. It delegates all methods that it does not override.

    >>> from flwr.serverapp.strategy import FedAvg
    >>> class LogReplies(Layer):
    ...     def take(self, server_round, replies):
    ...         print(f"{len(replies)} replies in round {server_round}")
    ...         return replies
    >>> LogReplies(FedAvg()).describe()
    'LogReplies(FedAvg)'
    """

    remembers: ClassVar[tuple[str, ...]] = ()  # its own attributes that are saved
    own_records: tuple[str, ...] = ()  # names of the records that it asks clients to add to replies

    def __init__(self, inner: Strategy, federation: Federation | None = None) -> None:
        self.inner = inner
        inside: Federation | None = inner.federation if isinstance(inner, Layer) else None
        self.federation: Federation = federation or inside or Federation()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a training round."""
        messages = self.inner.configure_train(server_round, arrays, config, grid)
        if not isinstance(self.inner, Layer):
            messages = self.federation.assign(server_round, messages)
        if type(self).guide is Layer.guide:
            return messages
        requests = Requests.of(messages)
        if requests is None:
            return []
        self.guide(server_round, requests)
        return requests

    def guide(self, server_round: int, requests: Requests) -> None:
        """Add to the training messages what their clients are to know."""

    def begin(self, server_round: int, arrays: ArrayRecord, grid: Grid) -> None:
        """Receive the model of a round that asks nobody; replies of earlier rounds may come."""
        if isinstance(self.inner, Layer):
            self.inner.begin(server_round, arrays, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Return the new model and the metrics of a round; replies may be a stream to read once."""
        if type(self).take is not Layer.take:
            stream = ReplyStream(tables_in(replies))
            replies = stream.through(partial(self.take, server_round))
        return self.inner.aggregate_train(server_round, replies)

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Check, decode and learn from each table of replies; return the rows to aggregate."""
        return replies

    def hear(self, server_round: int, replies: Replies) -> None:
        """Learn from training replies that came after their round; they are never aggregated.

        Their assignments hold the round and the model of the request. Layers that check or decode
        replies do so first, and set aside invalid ones. Layers that learn from replies count what
        is still valid, for the round of the request.
        """
        if isinstance(self.inner, Layer):
            self.inner.hear(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of an evaluation round."""
        messages = self.inner.configure_evaluate(server_round, arrays, config, grid)
        if isinstance(self.inner, Layer):
            return messages
        return self.federation.assign(server_round, messages)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the metrics of an evaluation round."""
        return self.inner.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the settings of the strategy inside."""
        self.inner.summary()

    def describe(self) -> str:
        """Return the stack in one line, such as ``Quarantine(Selection(FedAvg))``."""
        name = type(self).__name__.removesuffix("Layer") or "Layer"
        return f"{name}({describe(self.inner)})"

    def replies_wanted(self) -> int | None:
        """Return how many replies of the round just configured are enough; None for all."""
        return self.inner.replies_wanted() if isinstance(self.inner, Layer) else None

    def limit(self, count: int) -> None:
        """Let the next round train this many clients, whatever the settings."""
        if isinstance(self.inner, Layer):
            self.inner.limit(count)

    def evaluates(self) -> bool:
        """Return whether clients are asked to evaluate at all."""
        return self.inner.evaluates() if isinstance(self.inner, Layer) else True

    def models(self, arrays: ArrayRecord) -> Models:
        """Return the models in use, each with the share of clients that use it."""
        return self.inner.models(arrays) if isinstance(self.inner, Layer) else {"": (arrays, 1.0)}

    def collected(self) -> dict[str, Any]:
        """Return data from clients that a run may keep for analysis."""
        return self.inner.collected() if isinstance(self.inner, Layer) else {}

    def reply_records(self) -> frozenset[str]:
        """Return the names of all records that this layer and those inside read from replies."""
        inside = self.inner.reply_records() if isinstance(self.inner, Layer) else frozenset()
        return inside.union(self.own_records)

    def metrics_needed(self) -> tuple[str, ...]:
        """Return the metrics that a reply must have, each at least 0, to be aggregated."""
        return self.inner.metrics_needed() if isinstance(self.inner, Layer) else ()

    def wrapped(self) -> list[Strategy]:
        """Return Flower's own strategies at the bottom of the stack."""
        return self.inner.wrapped() if isinstance(self.inner, Layer) else [self.inner]

    def own_state(self) -> dict[str, Any]:
        """Return what this layer itself remembers between rounds."""
        return saved(self, self.remembers)

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`own_state` returned."""
        restore(self, self.remembers, state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this layer and of all inside it, as a tree of arrays and scalars."""
        return {"own": self.own_state(), "inner": strategy_state(self.inner)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.load_own_state(state["own"])
        load_strategy_state(self.inner, state["inner"])


def as_layer(strategy: Strategy) -> Layer:
    """Return a strategy as a layer: itself, or a layer around it that changes nothing."""
    return strategy if isinstance(strategy, Layer) else Layer(strategy)


def describe(strategy: Strategy) -> str:
    """Return a strategy and all inside it as one line."""
    return strategy.describe() if isinstance(strategy, Layer) else type(strategy).__name__


@contextmanager
def unchanged_on_failure(strategy: Strategy) -> Iterator[None]:
    """Put back what Flower's strategies remember if aggregation fails half-way.

    They replace their arrays, never change them in place, so keeping the references is enough.
    Layers keep what they learned: a repeated round chooses other clients.
    """
    stock = as_layer(strategy).wrapped()
    before = [dict(vars(part)) for part in stock]
    try:
        yield
    except Exception:
        for part, attributes in zip(stock, before, strict=True):
            vars(part).update(attributes)
        raise


def strategy_state(strategy: Strategy) -> dict[str, Any]:
    """Return what a strategy remembers; of Flower's own, the attributes that hold arrays."""
    if hasattr(strategy, "state_dict"):
        return dict(strategy.state_dict())
    state: dict[str, Any] = {}
    for name, value in vars(strategy).items():
        if isinstance(value, ArrayRecord):
            state[name] = {"record": from_record(value)}
        elif _holds_arrays(value):
            state[name] = {"arrays": _as_arrays(value)}
    return state


def load_strategy_state(strategy: Strategy, state: dict[str, Any]) -> None:
    """Restore what :func:`strategy_state` returned."""
    if hasattr(strategy, "load_state_dict"):
        strategy.load_state_dict(state)
        return
    for name, value in state.items():
        setattr(
            strategy, name, to_record(value["record"]) if "record" in value else value["arrays"]
        )


def _as_arrays(value: Any) -> Any:
    """Return numpy's scalars, which it makes of arrays without axes, as the arrays they were."""
    if isinstance(value, dict):
        return {name: np.asarray(entry) for name, entry in value.items()}
    return [np.asarray(entry) for entry in value] if isinstance(value, list) else np.asarray(value)


def _holds_arrays(value: Any) -> bool:
    entries: list[Any] = []
    if isinstance(value, np.ndarray | np.generic):
        entries = [value]
    elif isinstance(value, dict):
        entries = list(value.values())
    elif isinstance(value, list):
        entries = value
    return bool(entries) and all(isinstance(entry, np.ndarray | np.generic) for entry in entries)
