"""Small functions of core/learning, each by an example."""

from forager.core.config import read_config
from forager.core.learning.layer_squares import rule_for
from forager.core.learning.train_settings import learning_rate
from forager.core.learning.vmap_stack import may_vmap
from torch import nn


def test_rule_for_of_layer_squares():
    assert (rule_for(nn.Linear(2, 3)) is not None, rule_for(nn.LSTM(2, 3)) is not None) == (
        True,
        False,
    )


def test_may_vmap_of_vmap_stack():
    assert may_vmap(nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2)))
    assert not (may_vmap(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))))


def test_learning_rates_fall_by_steps_or_along_a_cosine():
    step = read_config({"schedule.kind": "step", "schedule.every": 2, "learning-rate": 0.8})
    assert [learning_rate(step, r) for r in (1, 2, 3, 5)] == [0.8, 0.8, 0.4, 0.2]
    keys = {"schedule.kind": "cosine", "schedule.rounds": 10, "learning-rate": 1.0}
    cosine = read_config(keys)
    assert round(learning_rate(cosine, 6), 3) == 0.5
    assert learning_rate(cosine, 11) == 0.0
