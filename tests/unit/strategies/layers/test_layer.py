from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, assert_same, listening_to, one_round, small_model
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg, FedAvgM
from forager.core.log.events import FineTuned
from forager.core.storage import tree
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS
from forager.strategies.aggregation.flower_aggregator import FlowerAggregator
from forager.strategies.federation.federation import Federation
from forager.strategies.layers.base import (
    Layer,
    as_layer,
    describe,
    load_strategy_state,
    strategy_state,
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
        self.federation.note(FineTuned(round=self.rounds))
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


def test_a_stack_can_be_named_and_taken_apart() -> None:
    inner = fedavg()
    stack = Counting(Layer(inner))
    assert stack.wrapped() == [inner]
    assert stack.describe() == describe(stack) == "Counting(Layer(FedAvg))"
    assert describe(inner) == "FedAvg"


def test_a_strategy_of_flower_is_made_a_layer_and_a_layer_stays_what_it_is() -> None:
    inner, layer = fedavg(), Counting(fedavg())
    assert as_layer(layer) is layer
    around = as_layer(inner)
    assert type(around) is Layer
    assert around.inner is inner


class Reading(Layer):
    """Overrides what layers can say besides the five methods."""

    own_records = ("mine",)

    def replies_wanted(self) -> int | None:
        return 3

    def evaluates(self) -> bool:
        return False

    def models(self, arrays: Any) -> Any:
        return {"a": (arrays, 0.25), "b": (arrays, 0.75)}

    def collected(self) -> dict[str, Any]:
        return {"found": 1}

    def metrics_needed(self) -> tuple[str, ...]:
        return ("train_loss",)

    def limit(self, count: int) -> None:
        self.limited = count


def test_what_a_layer_says_is_heard_through_those_around_it() -> None:
    arrays, reading = to_record(small_model()), Reading(fedavg())
    stack = Layer(Layer(reading))
    stack.limit(7)
    assert reading.limited == 7
    assert stack.replies_wanted() == 3
    assert stack.evaluates() is False
    assert stack.models(arrays) == {"a": (arrays, 0.25), "b": (arrays, 0.75)}
    assert stack.collected() == {"found": 1}
    assert stack.reply_records() == {"mine"}
    assert stack.metrics_needed() == ("train_loss",)


def test_a_strategy_of_flower_has_one_model_wants_all_replies_and_keeps_nothing() -> None:
    arrays, stack = to_record(small_model()), Layer(Layer(fedavg()))
    stack.limit(7)
    assert stack.replies_wanted() is None
    assert stack.evaluates() is True
    assert stack.models(arrays) == {"": (arrays, 1.0)}
    assert stack.collected() == {}
    assert stack.reply_records() == frozenset()
    assert stack.metrics_needed() == ()


def test_layers_share_one_federation_from_the_inside_out() -> None:
    innermost = FlowerAggregator(fedavg(), mean_like=True)
    middle = Layer(innermost)
    outer = Counting(middle)
    assert outer.federation is middle.federation is innermost.federation
    given = Federation()
    made_with = Layer(FlowerAggregator(fedavg(), mean_like=True, federation=given))
    assert made_with.federation is given
    assert Layer(Layer(fedavg(), given)).federation is given
    assert Layer(fedavg()).federation is not Layer(fedavg()).federation


def test_what_clients_were_sent_is_known_to_all_layers_whatever_they_changed() -> None:
    """A layer that sends another model says so."""

    class Replacing(Layer):
        def configure_train(self, server_round: int, *given: Any) -> Any:
            messages = list(super().configure_train(server_round, *given))
            messages[1].content[ARRAYS] = to_record({"w": np.full(3, 9.0, np.float32)})
            return self.federation.assign(server_round, messages)

    stack = Layer(Replacing(Layer(fedavg())))
    start = to_record({"w": np.zeros(3, np.float32)})
    messages = list(stack.configure_train(1, start, ConfigRecord(), FakeGrid(KEYS)))
    for message in messages:
        sent = stack.federation.sent_model(message.metadata.dst_node_id)
        assert sent is message.content[ARRAYS]


def test_every_layer_reports_to_the_journal_and_none_needs_one() -> None:
    stack = Counting(Counting(fedavg()))
    one_round(stack, to_record(small_model()), FakeGrid(KEYS))
    notes = listening_to(stack)
    one_round(stack, to_record(small_model()), FakeGrid(KEYS), 2)
    assert [event.round for event in notes.of(FineTuned)] == [2, 2]


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
