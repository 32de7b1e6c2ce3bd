"""Small functions of core/learning, each by an example."""

from forager.core.learning.layer_squares import rule_for
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
