"""The base of all layers, and the journal they write to.

A layer is a Flower ``Strategy`` that holds another one and delegates everything. A subclass
overrides only what it changes. Layers work under this project's round loop and under Flower's own
``strategy.start``.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ..core.wire.arrays import from_record, to_record


class Journal(Protocol):
    """Where layers report what they decided: ``journal("selected", round=3, chosen=[...])``."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event down."""


def silent(event: str, **fields: Any) -> None:
    """Keep nothing: the journal of a layer that nobody listens to."""


class Layer(Strategy):
    """A strategy around a strategy. Delegates all five methods.

    Parameters
    ----------
    inner : Strategy
        Any Flower strategy, another layer included.
    """

    own_records: tuple[str, ...] = ()  # names of the records that it asks clients to add to replies

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner
        self.journal: Journal = silent

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a training round."""
        return self.inner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the new model and the metrics of a round; replies may be a stream, read once."""
        return self.inner.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of an evaluation round."""
        return self.inner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the metrics of an evaluation round."""
        return self.inner.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the settings of the strategy inside."""
        self.inner.summary()

    def own_state(self) -> dict[str, Any]:
        """Return what this layer itself remembers between rounds."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this layer and of all inside it, as a tree of arrays and scalars."""
        return {"own": self.own_state(), "inner": strategy_state(self.inner)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.load_own_state(state["own"])
        load_strategy_state(self.inner, state["inner"])


def walk(strategy: Strategy) -> Iterator[Strategy]:
    """Yield a strategy and everything it wraps, outermost first."""
    current: Strategy | None = strategy
    while current is not None:
        yield current
        current = getattr(current, "inner", None)


def describe(strategy: Strategy) -> str:
    """Return the stack as one line, such as ``Quarantine(Selection(FedAvg))``."""
    names = [type(part).__name__ for part in walk(strategy)]
    return "(".join(names) + ")" * (len(names) - 1)


def replies_wanted(strategy: Strategy) -> int | None:
    """Return how many replies of the round just configured are enough, if a layer says so."""
    counts = (getattr(part, "wanted", None) for part in walk(strategy))
    return next((count for count in counts if count is not None), None)


def models_of(strategy: Strategy, arrays: ArrayRecord) -> dict[str, tuple[ArrayRecord, float]]:
    """Return the models that clients use, each with the share of clients that use it.

    Most strategies have one, the global model; cohorts have one each.
    """
    for part in walk(strategy):
        models = part.models_to_evaluate() if hasattr(part, "models_to_evaluate") else {}
        if models:
            return dict(models)
    return {"": (arrays, 1.0)}


def collected_of(strategy: Strategy) -> dict[str, Any]:
    """Return what clients have sent that a run may keep for analysis, if a layer collects any."""
    parts = (part for part in walk(strategy) if hasattr(part, "collected"))
    return next((found for part in parts if (found := dict(part.collected()))), {})


@contextmanager
def unchanged_on_failure(strategy: Strategy) -> Iterator[None]:
    """Put back what Flower's strategies remember if aggregation fails half-way.

    They replace their arrays, never change them in place, so keeping the references is enough.
    Layers keep what they learnt: a repeated round chooses other clients.
    """
    stock = [part for part in walk(strategy) if not isinstance(part, Layer)]
    before = [dict(vars(part)) for part in stock]
    try:
        yield
    except Exception:
        for part, attributes in zip(stock, before, strict=True):
            vars(part).update(attributes)
        raise


def attach_journal(strategy: Strategy, journal: Journal) -> None:
    """Make every layer of a stack report to a journal."""
    for part in walk(strategy):
        if isinstance(part, Layer):
            part.journal = journal


def strategy_state(strategy: Strategy) -> dict[str, Any]:
    """Return what a strategy remembers between rounds.

    Flower's own strategies have no method for that: what they remember (moments, momentum, the
    current model) are their attributes that hold arrays.
    """
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
    """Take back what :func:`strategy_state` returned."""
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
