"""Cohorts of heads over a shared body."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, answer, assert_same, honest_records, rounds, small_model
from flwr.app import Message
from forager.core.config import ConfigError, read_config
from forager.core.storage import tree
from forager.core.tasks.errors import TaskError
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS
from forager.strategies.build import build_strategy, single_model_stack
from forager.strategies.cohorts.sharing import head_names
from forager.strategies.cohorts.update_sketches import Signal
from forager.strategies.federation.federation import Federation
from forager.strategies.layers.base import Layer
from forager.strategies.layers.cohorts import Cohorts
from test_cohorts import OddAndEven

KEYS = [str(i) for i in range(8)]
START = to_record(small_model())
OWN = frozenset(["layer.bias"])


class Settled(OddAndEven):
    """Knows where a client belongs once the cohort is split."""

    def settled(self, placed: Mapping[str, str]) -> dict[str, str]:
        if len(self.cohorts) == 1:
            return dict(placed)
        return {key: self.cohorts[int(key) % 2] for key in placed}


def cohorts(
    aggregator: str = "fedavg",
    own: frozenset[str] = OWN,
    keys: Mapping[str, Any] | None = None,
    **more: Any,
) -> Cohorts:
    config = read_config({"aggregator": aggregator, **(keys or {})})
    federation = Federation()

    def make() -> Layer:
        return single_model_stack(config, federation)

    return Cohorts(make, Settled(), Signal(8), own_arrays=own, **more)


@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm", "fedyogi", "median"])
@pytest.mark.parametrize("own_start", [False, True])
def test_heads_differ_and_the_body_is_one(aggregator: str, own_start: bool) -> None:
    layer = cohorts(aggregator, own_start=own_start)
    rounds(layer, START, FakeGrid(KEYS), range(1, 6))
    even, odd = (from_record(model) for model in layer.leaf_models.values())
    for name in even:
        assert np.allclose(even[name], odd[name]) == (name not in OWN)


def test_the_body_is_the_mean_over_all_cohorts() -> None:
    shared, apart, equal = cohorts(), cohorts(own=frozenset()), cohorts(equal_weights=True)
    for layer in (shared, apart, equal):
        rounds(layer, START, FakeGrid(KEYS), range(1, 4))  # split after 2, then one round apart
    first, second = (from_record(m)["layer.weight"] for m in apart.leaf_models.values())
    assert not np.allclose(first, second)
    found, halves = (
        from_record(next(iter(layer.leaf_models.values())))["layer.weight"]
        for layer in (shared, equal)
    )
    np.testing.assert_allclose(halves, (first + second) / 2, rtol=1e-5)
    share = ((found - second) / (first - second)).mean()  # of the samples, in the first cohort
    np.testing.assert_allclose(found, share * first + (1 - share) * second, rtol=1e-4)
    assert 0 < share < 1


def test_a_cohort_without_clients_takes_the_body_over() -> None:
    layer = cohorts()
    rounds(layer, START, FakeGrid(KEYS), range(1, 4))
    before = from_record(layer.leaf_models["0.1"])
    rounds(layer, START, FakeGrid(KEYS[::2], first_node=900), range(4, 5))
    even, odd = (from_record(model) for model in layer.leaf_models.values())
    for name in odd:
        assert np.array_equal(odd[name], before[name] if name in OWN else even[name])


def idle(message: Message, key: str, look: int = 0) -> list[Message]:
    """Send back the model that came."""
    return [answer(message, honest_records(message, key) | {ARRAYS: message.content[ARRAYS]})]


def test_the_next_round_begins_from_the_shared_body() -> None:
    """FedAvgM keeps the model it made itself, which lacks what other cohorts have learnt."""
    halfway = {"aggregation.momentum": 0.0, "aggregation.learning-rate": 0.5}
    layer = cohorts("fedavgm", keys=halfway)
    middle = rounds(layer, START, FakeGrid(KEYS), range(1, 4))  # split after 2, one round apart
    before = {name: from_record(model) for name, model in layer.leaf_models.items()}
    assert len(before) == 2
    alone = KEYS[::2]  # with the other cohort, what both get wrong would cancel out
    rounds(layer, middle, FakeGrid(alone, dict.fromkeys(alone, idle), first_node=900), range(4, 5))
    for cohort, model in layer.leaf_models.items():
        for name, array in from_record(model).items():
            np.testing.assert_allclose(array, before[cohort][name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm"])
def test_continues_from_a_saved_state(aggregator: str) -> None:
    whole, grid = cohorts(aggregator, count=6), FakeGrid(KEYS)
    middle = rounds(whole, START, grid, range(1, 5))
    data = tree.to_bytes({"strategy": whole.state_dict()}, "test")
    never_stopped = rounds(whole, middle, grid, range(5, 7))
    resumed = cohorts(aggregator, count=6)
    resumed.load_state_dict(tree.from_bytes(data, "test")["strategy"])
    assert_same(rounds(resumed, middle, FakeGrid(KEYS), range(5, 7)), never_stopped)


def test_the_head_is_the_last_layer() -> None:
    keys = {"cohorts": "ifca", "model": "mlp", "cohort.share": "body"}
    assert head_names(read_config(keys)) == {"3.weight", "3.bias"}
    assert head_names(read_config({**keys, "cohort.share": "none"})) == frozenset()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"model": "softmax"}, "only its last layer can be trained; use 'none'"),
        ({"task": "shapes"}, "cohort.share = 'body': the model's last layer is Conv2d"),
    ],
)
def test_a_model_that_cannot_be_divided_is_refused(keys: dict[str, Any], said: str) -> None:
    config = read_config({"cohorts": "cfl", "cohort.share": "body", **keys})
    with pytest.raises(TaskError, match=said):
        build_strategy(config)


def test_a_buffer_is_refused() -> None:
    keys = {"cohorts": "cfl", "cohort.share": "body", "model": "mlp", "aggregation.buffer": 2}
    with pytest.raises(ConfigError, match=r"aggregation\.buffer = 2: cohort\.share = 'body'"):
        read_config(keys)
