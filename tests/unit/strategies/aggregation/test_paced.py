"""The paced aggregator: a step that follows how well successive rounds agree."""

import numpy as np
import pytest
from forager.core.config import read_config
from forager.core.wire.arrays import from_record, to_record
from forager.strategies.aggregation.aggregators import paced
from forager.strategies.aggregation.paced import PacedAvg, next_step
from forager.strategies.layers.base import load_strategy_state, strategy_state


def _round(strategy: PacedAvg, model: np.ndarray, update: np.ndarray) -> np.ndarray:
    """Return the model after a round whose mean update is given, without any messages."""
    strategy.current = {"w": model}
    mean = to_record({"w": model + update})
    base = PacedAvg.__mro__[1]
    original = base.aggregate_train
    base.aggregate_train = lambda self, server_round, replies: (mean, None)
    try:
        arrays, _ = strategy.aggregate_train(1, [])
    finally:
        base.aggregate_train = original
    assert arrays is not None
    return from_record(arrays)["w"]


def test_the_first_round_is_fedavg():
    model, update = np.zeros(3), np.array([1.0, 2.0, 3.0])
    assert np.allclose(_round(PacedAvg(), model, update), update)


def test_rounds_that_agree_lengthen_the_step_and_rounds_that_oppose_shorten_it():
    strategy, model = PacedAvg(), np.zeros(2)
    for _ in range(10):
        model = _round(strategy, model, np.array([1.0, 0.0]))
    longest = strategy.pace[0]
    assert longest > 10 * 0.5
    _round(strategy, model, np.array([-1.0, 0.0]))
    assert strategy.pace[0] < longest


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0, np.array([0.6, 0.2, 0.9])])
def test_the_model_does_not_swing_around_its_aim(share: float | np.ndarray):
    strategy, aim, model = PacedAvg(), np.array([1.0, -2.0, 0.5]), np.zeros(3)
    far = []
    for _ in range(22):
        model = _round(strategy, model, share * (aim - model))  # of the way that a round goes
        far.append(float(np.linalg.norm(model - aim)))
    assert max(far[18:]) < 0.05 * np.linalg.norm(aim)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_step_does_not_depend_on_the_size_of_updates(scale: float):
    rng, updates = PacedAvg(), np.random.default_rng(0).normal(size=(20, 5)) + 0.5
    model = np.zeros(5)
    for update in updates:
        model = _round(rng, model, scale * update)
    plain, expected = PacedAvg(), np.zeros(5)
    for update in updates:
        expected = _round(plain, expected, update)
    assert np.allclose(model / scale, expected)


def test_a_step_stays_between_1_and_16():
    assert next_step(16.0, 1.0) == 16.0
    assert next_step(1.0, -1.0) == 1.0


def test_no_update_at_all_leaves_the_model_and_the_step():
    strategy = PacedAvg()
    assert np.array_equal(_round(strategy, np.ones(2), np.zeros(2)), np.ones(2))
    assert strategy.pace[0] == 1.0


def test_state_is_saved_and_restored():
    one, model = PacedAvg(), np.zeros(2)
    for _ in range(4):
        model = _round(one, model, np.array([1.0, 0.5]))
    other = PacedAvg()
    load_strategy_state(other, strategy_state(one))
    update = np.array([0.3, 0.1])
    assert np.array_equal(_round(one, model, update), _round(other, model, update))


def test_the_run_config_sets_its_momentum():
    layer = paced(read_config({"aggregator": "paced", "aggregation.momentum": 0.5}))
    assert isinstance(layer.inner, PacedAvg)
    assert layer.inner.server_momentum == 0.5
