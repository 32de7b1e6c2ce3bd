from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, Notes, assert_same, one_round, small_model
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg, FedAvgM
from forager.core.methods.registry import AXES, available, resolve
from forager.core.storage import tree
from forager.core.wire.arrays import to_record
from forager.strategies.layer import (
    Layer,
    attach_journal,
    describe,
    load_strategy_state,
    strategy_state,
    walk,
)

KEYS = [str(i) for i in range(4)]


def fedavg() -> FedAvg:
    return FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)


class Counting(Layer):
    """Remembers how many rounds it has seen."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.rounds = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.rounds += 1
        self.journal("counted", rounds=self.rounds)
        return super().aggregate_train(server_round, replies)

    def own_state(self) -> dict[str, Any]:
        return {"rounds": self.rounds}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.rounds = int(state["rounds"])


def test_a_layer_that_does_nothing_changes_nothing() -> None:
    arrays = to_record(small_model())
    plain, _ = one_round(fedavg(), arrays, FakeGrid(KEYS))
    wrapped, _ = one_round(Layer(Layer(fedavg())), arrays, FakeGrid(KEYS))
    assert_same(wrapped, plain)


def test_all_five_methods_are_handed_on() -> None:
    calls: list[str] = []

    class Watching(FedAvg):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith(("configure_", "aggregate_", "summary")):
                calls.append(name)
            return super().__getattribute__(name)

    layer, grid = Layer(Watching(min_evaluate_nodes=1, min_train_nodes=1)), FakeGrid(KEYS)
    arrays = to_record(small_model())
    layer.configure_train(1, arrays, ConfigRecord(), grid)
    layer.aggregate_train(1, [])
    layer.configure_evaluate(1, arrays, ConfigRecord(), grid)
    layer.aggregate_evaluate(1, [])
    layer.summary()
    assert calls == [
        "configure_train",
        "aggregate_train",
        "configure_evaluate",
        "aggregate_evaluate",
        "summary",
    ]


def test_a_stack_can_be_walked_and_named() -> None:
    inner = fedavg()
    stack = Counting(Layer(inner))
    assert list(walk(stack)) == [stack, stack.inner, inner]
    assert describe(stack) == "Counting(Layer(FedAvg))"
    assert describe(inner) == "FedAvg"


def test_every_layer_reports_to_the_journal_and_none_needs_one() -> None:
    stack, notes = Counting(Counting(fedavg())), Notes()
    one_round(stack, to_record(small_model()), FakeGrid(KEYS))
    attach_journal(stack, notes)
    one_round(stack, to_record(small_model()), FakeGrid(KEYS), 2)
    assert [event["rounds"] for event in notes.of("counted")] == [2, 2]


def test_the_state_of_a_stack_is_that_of_all_its_parts() -> None:
    stack = Counting(Counting(FedAvgM(min_train_nodes=1, server_momentum=0.9)))
    arrays = to_record({"w": np.zeros(3, np.float32)})
    one_round(stack, arrays, FakeGrid(KEYS))
    state = tree.from_bytes(tree.to_bytes(stack.state_dict(), "t"), "t")
    fresh = Counting(Counting(FedAvgM(min_train_nodes=1, server_momentum=0.9)))
    fresh.load_state_dict(state)
    assert fresh.rounds == 1
    for name in ("momentum_vector", "current_arrays"):
        np.testing.assert_equal(
            np.asarray(_plain(getattr(fresh.inner.inner, name))),  # type: ignore[attr-defined]
            np.asarray(_plain(getattr(stack.inner.inner, name))),  # type: ignore[attr-defined]
        )


def _plain(value: Any) -> Any:
    return value.to_numpy_ndarrays() if isinstance(value, ArrayRecord) else value


@pytest.mark.parametrize(
    "value",
    [
        np.arange(3.0),
        [np.arange(3.0), np.zeros((2, 2))],
        {"a": np.arange(3.0)},
        [np.arange(3.0), np.float32(1.5)],
        {"a": np.arange(3.0), "b": np.float64(0.5)},
    ],
    ids=["array", "list", "dict", "list with a scalar", "dict with a scalar"],
)
def test_what_a_strategy_of_flower_remembers_is_kept(value: Any) -> None:
    """Arithmetic on zero-dimensional arrays gives scalars of numpy."""
    strategy = fedavg()
    strategy.memory = value  # type: ignore[attr-defined]
    saved = tree.from_bytes(tree.to_bytes(strategy_state(strategy), "t"), "t")
    fresh = fedavg()
    load_strategy_state(fresh, saved)
    np.testing.assert_equal(fresh.memory, value)  # type: ignore[attr-defined]


def test_settings_are_no_state() -> None:
    assert strategy_state(fedavg()) == {}


@pytest.mark.parametrize(
    ("axis", "name"),
    [(axis, name) for axis in AXES for name in available(axis) if ":" in AXES[axis][name]],
)
def test_every_registered_name_can_be_loaded(axis: str, name: str) -> None:
    assert callable(resolve(axis, name))
