"""What a sample is worth, against gradients that autograd writes out one by one."""

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning.sample_values import HeadValuation, LayersValuation, valuation
from forager.core.tasks.models import build_model
from torch import nn
from torch.nn import functional


@pytest.fixture
def lenet():
    return build_model("lenet", (1, 16, 16), 4, seed=3).eval()


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(5)
    return (
        torch.randn(7, 1, 16, 16, generator=generator),
        torch.randint(4, (7,), generator=generator),
    )


def gradients_of(model, x, y, names):
    """One flat gradient a sample, in the order of the names."""
    chosen = [dict(model.named_parameters())[name] for name in names]
    rows = []
    for sample, label in zip(x, y, strict=True):
        loss = functional.cross_entropy(model(sample[None]), label[None])
        parts = torch.autograd.grad(loss, chosen)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows).numpy()


def bias_first(rows, classes, width):
    """Turn gradients of a weight and a bias into rows of [bias, weights] for each class."""
    weights = rows[:, : classes * width].reshape(-1, classes, width)
    biases = rows[:, classes * width :].reshape(-1, classes, 1)
    return np.concatenate([biases, weights], axis=2).reshape(len(rows), -1)


def check(looked, model, samples, rows, direction):
    x, y = samples
    losses = functional.cross_entropy(model(x), y, reduction="none").detach().numpy()
    close = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(looked.losses, losses, **close)
    np.testing.assert_allclose(looked.mean_gradient, rows.mean(0), **close)
    np.testing.assert_allclose(looked.values, rows @ direction, **close)
    np.testing.assert_allclose(looked.norms, np.linalg.norm(rows, axis=1), **close)


def test_the_last_layer_has_a_closed_form(lenet, samples):
    rows = bias_first(gradients_of(lenet, *samples, ["8.weight", "8.bias"]), 4, 84)
    direction = np.random.default_rng(0).normal(size=rows.shape[1]).astype(np.float32)
    check(HeadValuation(lenet).look(*samples, direction), lenet, samples, rows, direction)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_layers_together_are_what_autograd_says(lenet, samples, layers):
    weighted = [name for name, _ in lenet.named_parameters()]
    names = weighted[-2 * layers :]  # every layer has a weight and a bias; all of them for 0
    rows = gradients_of(lenet, *samples, names)
    direction = np.random.default_rng(1).normal(size=rows.shape[1]).astype(np.float32)
    found = LayersValuation(lenet, layers, norms=True)
    assert found.size == rows.shape[1]
    check(found.look(*samples, direction), lenet, samples, rows, direction)


def test_one_layer_is_the_same_in_both_ways(lenet, samples):
    direction = np.random.default_rng(2).normal(size=4 * 85).astype(np.float32)
    by_rows = direction.reshape(4, 85)
    torchs_order = np.concatenate([by_rows[:, 1:].ravel(), by_rows[:, 0]])
    head = HeadValuation(lenet).look(*samples, direction)
    layers = LayersValuation(lenet, 1).look(*samples, torchs_order)
    np.testing.assert_allclose(head.values, layers.values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("way", [HeadValuation, lambda model: LayersValuation(model, 0)])
def test_without_a_direction_there_are_no_values(lenet, samples, way):
    looked = way(lenet).look(*samples, None)
    assert looked.values is None
    assert len(looked.losses) == 7
    assert np.isfinite(looked.mean_gradient).all()


@pytest.mark.parametrize("way", [HeadValuation, lambda model: LayersValuation(model, 0, True)])
def test_no_samples_are_no_trouble(lenet, way):
    found = way(lenet)
    nothing = torch.zeros(0, 1, 16, 16), torch.zeros(0, dtype=torch.int64)
    looked = found.look(*nothing, np.ones(found.size, dtype=np.float32))
    assert len(looked.losses) == len(looked.values) == len(looked.norms) == 0
    assert not looked.mean_gradient.any()


def test_many_samples_are_looked_at_in_parts():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2500, 3, generator=generator), torch.arange(2500) % 2
    whole = HeadValuation(model).look(x, y, np.ones(8, dtype=np.float32))
    single = HeadValuation(model).look(x[2100:2101], y[2100:2101], np.ones(8, dtype=np.float32))
    assert len(whole.values) == 2500
    assert whole.values[2100] == pytest.approx(single.values[0], rel=1e-5)


def test_a_sample_that_is_not_finite_spoils_no_other(lenet, samples):
    x, y = samples
    direction = np.ones(4 * 85, dtype=np.float32)
    good = HeadValuation(lenet).look(x, y, direction)
    spoilt = x.clone()
    spoilt[2, 0, 8] = torch.nan
    looked = HeadValuation(lenet).look(spoilt, y, direction)
    assert np.isnan(looked.values[2])
    others = np.arange(7) != 2
    np.testing.assert_allclose(looked.values[others], good.values[others], rtol=1e-5)


def test_other_rules_look_at_the_last_layer_whatever_ode_does(lenet):
    deep = {"ode.layers": 2}
    ode = valuation(lenet, read_config({"data-selector": "ode-balanced", **deep}))
    assert isinstance(ode, LayersValuation)
    assert isinstance(
        valuation(lenet, read_config({"data-selector": "sld", **deep})), HeadValuation
    )
