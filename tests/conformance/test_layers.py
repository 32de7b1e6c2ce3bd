"""Promises that every aggregator and every stack of layers keeps."""

import copy
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, assert_same, one_round, rounds, small_model
from flwr.app import ArrayRecord, ConfigRecord, Message
from forager.core.config import RunConfig, read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.methods.catalogue import methods
from forager.core.storage import tree
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS
from forager.server_app.loop import Loop
from forager.server_app.post import Post
from forager.server_app.retries import LoopPlan
from forager.strategies.aggregation.fltrust import FLTrust
from forager.strategies.build import build_strategy
from forager.strategies.federation.federation import Federation
from forager.strategies.layers.base import Layer
from forager.strategies.layers.cohorts import Cohorts
from forager.tools.engine.local_grid import LocalGrid

ALL_STACKS = [(a, u) for a in methods("aggregator") for u in methods("uplink")]
# Every aggregator with dense updates and with one other uplink, by turns: an aggregator gets dense
# updates from every uplink, so that pairs tell as much as the whole product.
DENSE, *OTHERS = sorted(methods("uplink"), key=lambda name: name != "dense")
STACKS = [
    (aggregator, uplink)
    for number, aggregator in enumerate(methods("aggregator"))
    for uplink in (DENSE, OTHERS[number % len(OTHERS)])
]
KEYS = [str(i) for i in range(9)]

stacks = pytest.mark.parametrize(("aggregator", "uplink"), STACKS)


@pytest.fixture(autouse=True)
def _fltrust_without_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most models of these tests are of no task: the server could not train them."""
    honest = FLTrust.own_update

    def own_update(self: FLTrust, server_round: int) -> Any:
        if set(self.current) <= set(read_arrays(self.samples.model)):
            return honest(self, server_round)
        return np.full_like(self.flat(self.current), 0.1)

    monkeypatch.setattr(FLTrust, "own_update", own_update)


def config_of(aggregator: str, uplink: str, **other: int | float | str | bool) -> RunConfig:
    return read_config(
        {
            "aggregator": aggregator,
            "uplink": uplink,
            "num-clients": len(KEYS),
            "clients-per-round": 7,
            "top-k.density": 0.4,
            "aggregation.keep": 3,
            **{key.replace("_", "-"): value for key, value in other.items()},
        }
    )


def build(aggregator: str, uplink: str, **other: int | float | str | bool) -> Layer:
    return build_strategy(config_of(aggregator, uplink, **other))


@stacks
def test_drives_rounds_keeps_names_and_dtypes_and_is_the_same_on_the_wire(
    aggregator: str, uplink: str
) -> None:
    start = to_record(small_model())
    arrays = rounds(build(aggregator, uplink), start, FakeGrid(KEYS), range(1, 4))
    sent = rounds(build(aggregator, uplink), start, FakeGrid(KEYS, wire=True), range(1, 4))
    assert_same(arrays, sent)
    assert list(arrays) == list(start)
    for name, array in arrays.items():
        assert (array.dtype, tuple(array.shape)) == (start[name].dtype, tuple(start[name].shape))
    changed = from_record(arrays)["layer.weight"]
    assert np.isfinite(changed).all()
    assert not np.array_equal(changed, small_model()["layer.weight"])


@stacks
def test_continues_from_a_saved_state_as_if_never_stopped(aggregator: str, uplink: str) -> None:
    whole, grid = build(aggregator, uplink), FakeGrid(KEYS)
    middle = rounds(whole, to_record(small_model()), grid, range(1, 3))
    data = tree.to_bytes({"strategy": whole.state_dict()}, "test")
    saved = to_record(copy.deepcopy(from_record(middle)))
    never_stopped = rounds(whole, middle, grid, range(3, 6))

    fresh = build(aggregator, uplink)
    fresh.load_state_dict(tree.from_bytes(data, "test")["strategy"])
    assert_same(rounds(fresh, saved, FakeGrid(KEYS), range(3, 6)), never_stopped)


@stacks
def test_a_taken_state_does_not_change_with_later_rounds(aggregator: str, uplink: str) -> None:
    strategy, grid = build(aggregator, uplink), FakeGrid(KEYS)
    middle = rounds(strategy, to_record(small_model()), grid, range(1, 3))
    state = strategy.state_dict()
    before = copy.deepcopy(state)
    rounds(strategy, middle, grid, range(3, 5))
    np.testing.assert_equal(state, before)


@stacks
def test_does_not_change_the_model_it_is_given(aggregator: str, uplink: str) -> None:
    start = to_record(small_model())
    rounds(build(aggregator, uplink), start, FakeGrid(KEYS), range(1, 3))
    assert_same(start, to_record(small_model()))


@stacks
def test_messages_do_not_share_what_layers_add_to(aggregator: str, uplink: str) -> None:
    strategy = build(aggregator, uplink)
    messages = list(
        strategy.configure_train(1, to_record(small_model()), ConfigRecord(), FakeGrid(KEYS))
    )
    messages[0].content["guidance"] = ConfigRecord({"only": "for one"})
    assert len(messages) == 7
    assert all("guidance" not in message.content for message in messages[1:])
    for message in messages:
        assert_same(message.content.array_records[ARRAYS], to_record(small_model()))


@stacks
def test_counters_take_the_median_and_are_never_averaged(aggregator: str, uplink: str) -> None:
    grid = FakeGrid(KEYS)
    arrays, _ = one_round(build(aggregator, uplink), to_record(small_model()), grid)
    assert arrays is not None
    counter = from_record(arrays)["norm.num_batches_tracked"]
    trained = [grid.nodes[message.metadata.dst_node_id] for message in grid.of_kind("train")]
    # An encoded update carries changes of floats only: the counter stays as it was sent. Of this
    # model, whole ones are smaller than what top-k would send.
    whole = uplink in ("dense", "top-k", "top-k-plain")
    expected = 6 + np.median([int(key) for key in trained]) if whole else 5
    assert counter.dtype == np.int64
    assert counter == expected


@stacks
def test_a_scalar_parameter_survives_a_save(aggregator: str, uplink: str) -> None:
    start = {**small_model(), "temperature": np.array(1.5, dtype=np.float32)}
    whole, grid = build(aggregator, uplink), FakeGrid(KEYS)
    middle = rounds(whole, to_record(start), grid, range(1, 3))
    data = tree.to_bytes(whole.state_dict(), "test")
    fresh = build(aggregator, uplink)
    fresh.load_state_dict(tree.from_bytes(data, "test"))
    assert_same(
        rounds(fresh, middle, FakeGrid(KEYS), range(3, 5)), rounds(whole, middle, grid, range(3, 5))
    )


@stacks
def test_a_round_without_replies_is_no_model(aggregator: str, uplink: str) -> None:
    strategy = build(aggregator, uplink)
    list(strategy.configure_train(1, to_record(small_model()), ConfigRecord(), FakeGrid(KEYS)))
    assert strategy.aggregate_train(1, iter([])) == (None, None)
    assert strategy.aggregate_evaluate(1, iter([])) is None


@stacks
def test_a_grid_without_nodes_gets_no_messages(aggregator: str, uplink: str) -> None:
    strategy = build(aggregator, uplink, fraction_evaluate=1.0)
    arrays = to_record(small_model())
    assert list(strategy.configure_train(1, arrays, ConfigRecord(), FakeGrid([]))) == []
    assert list(strategy.configure_evaluate(1, arrays, ConfigRecord(), FakeGrid([]))) == []


def digits(
    aggregator: str, uplink: str, **other: int | float | str | bool
) -> tuple[Layer, LocalGrid, ArrayRecord]:
    settings = {"partition": "iid", "data.client-test-share": 0.2, **other}
    config = config_of(aggregator, uplink, fraction_evaluate=0.5, **settings)
    model = load_task(config.task_spec()).build_model()
    arrays = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    grid = LocalGrid(len(KEYS), config.flat(), check_wire=True)
    return build_strategy(config), grid, to_record(arrays)


METHODS: list[dict[str, int | float | str | bool]] = [
    {"data-selector": "trusted", "noise": "closed-set", "coreset.first-round": 0},
    {"data-selector": "crust", "fine-tune.epochs": 1, "coreset.every": 1},
    {"objective": "scaffold"},
    {"objective": "moon", "model": "mlp"},
]


@pytest.mark.parametrize("method", METHODS)
def test_methods_work_under_flowers_own_start_as_under_the_loop(
    method: dict[str, int | float | str | bool],
) -> None:
    check_start_and_loop("fedyogi", "top-k", **method)


@stacks
def test_works_under_flowers_own_start_as_under_the_loop(aggregator: str, uplink: str) -> None:
    check_start_and_loop(aggregator, uplink)


def check_start_and_loop(aggregator: str, uplink: str, **method: int | float | str | bool) -> None:
    strategy, grid, arrays = digits(aggregator, uplink, **method)
    result = strategy.start(grid, arrays, num_rounds=2)
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    assert 0 <= float(result.evaluate_metrics_clientapp[2]["accuracy"]) <= 1  # type: ignore[arg-type]

    strategy, grid, arrays = digits(aggregator, uplink, **method)
    loop = Loop(
        strategy,
        Post(grid, strategy.federation),
        arrays,
        LoopPlan(num_rounds=2),
        evaluate=lambda _: {"accuracy": 0.5, "loss": 1.0},
        callbacks=[],
    )
    assert loop.run() == "completed"
    assert_same(result.arrays, loop.arrays)
    assert from_record(loop.arrays).keys() == from_record(arrays).keys()
    assert all(array.dtype == "float32" for array in loop.arrays.values())


EVERY_LAYER: list[dict[str, int | float | str | bool]] = [
    {"aggregator": "fedyogi", "uplink": "top-k", "objective": "scaffold", "fine-tune.epochs": 1},
    {"data-selector": "trusted", "privacy": "local-dp"},
    {"data-selector": "ode-balanced"},
    {"privacy": "central-dp"},
    {"cohorts": "ifca"},
    {"cohorts": "clove"},
    {"cohorts": "split-test"},
    {"cohorts": "auxo"},
    {"cohorts": "neighbours", "similarity": "centred-overlap"},
    {"cohorts": "neighbours", "similarity": "signed-overlap"},
]


def layers_of(stack: Layer) -> list[Layer]:
    inner = [stack.inner] if isinstance(stack.inner, Layer) else []
    return [stack, *(part for layer in inner for part in layers_of(layer))]


@pytest.mark.parametrize("keys", EVERY_LAYER, ids=str)
def test_all_layers_share_the_federation_they_are_built_with(
    keys: dict[str, int | float | str | bool],
) -> None:
    given = Federation()
    for federation in (given, None):
        stack = build_strategy(read_config(keys), federation)
        parts = layers_of(stack)
        if isinstance(cohorts := next((p for p in parts if isinstance(p, Cohorts)), None), Cohorts):
            parts += layers_of(cohorts.cohorts.make_inner())
        assert len(parts) >= 3
        assert {id(part.federation) for part in parts} == {id(stack.federation)}
        assert federation is None or stack.federation is given


def test_every_stack_has_the_layers_it_should() -> None:
    for aggregator, uplink in ALL_STACKS:
        line = build(aggregator, uplink).describe()
        assert line.count("Quarantine") == line.count("Selection") == 1
        assert ("Uplink" in line) == (uplink != "dense")


def most_alive(strategy: Layer, server_round: int) -> int:
    """How many replies of a round are there at the same time while they are aggregated."""
    arrays, grid = to_record(small_model()), FakeGrid(KEYS)
    messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
    waiting = list(grid.send_and_receive(list(messages)))
    alive: list[weakref.ref[Any]] = []
    most = 0

    def stream() -> Iterator[Message]:
        nonlocal most
        while waiting:
            reply = waiting.pop()
            alive.append(weakref.ref(from_record(reply.content[ARRAYS])["layer.weight"]))  # type: ignore[arg-type]
            yield reply
            del reply
            most = max(most, sum(ref() is not None for ref in alive))

    assert strategy.aggregate_train(server_round, stream())[0] is not None
    assert len(alive) == 7
    return most


@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_means_take_replies_one_by_one_through_all_layers(aggregator: str) -> None:
    strategy = build(aggregator, "dense")
    assert most_alive(strategy, 1) <= 7, "all of the first round say what is usual"
    for number in (2, 3):
        most = most_alive(strategy, number)
        assert most <= 2, "the first, for its metadata, and the one being added"
