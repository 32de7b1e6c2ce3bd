"""What is computed for many clients at once, against one client after the other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from forager.core.config import read_config
from forager.core.learning.evaluation import (
    evaluate,
    evaluate_all,
    mean_losses,
    root_mean_square_losses,
)
from forager.core.learning.features import features_of, features_of_all
from forager.core.learning.fisher import fisher_diagonal, fisher_diagonals
from forager.core.learning.gradients import (
    rows_and_rivals,
    rows_and_rivals_of_all,
    sample_rows,
    sample_rows_of_all,
)
from forager.core.learning.job import Outcome, Outcomes
from forager.core.learning.model_arrays import load_arrays, read_arrays
from forager.core.learning.pools import Pool, pools
from forager.core.learning.sample_values import looked_at_all, valuation
from forager.core.tasks import Split
from forager.core.tasks.metrics import ACCURACY, resolved
from forager.core.tasks.problems import Classification, Regression, Segmentation
from forager.core.wire.arrays import flat_change
from torch import nn
from torch.nn import functional

SIZES = [3, 1, 40, 0, 2, 700, 900]


def chain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))


MODELS = {"chain": chain, "convolutional": convolutional}


def clients(sizes: Sequence[int] = SIZES) -> list[Split]:
    generator = torch.Generator().manual_seed(3)
    return [
        Split(
            torch.randn(n, 1, 2, 3, generator=generator),
            torch.randint(0, 3, (n,), generator=generator),
        )
        for n in sizes
    ]


def models_of(model: nn.Module, way: str, count: int) -> list[dict[str, Any]]:
    """Return one model for all, two models by turns, or a model each."""
    first = read_arrays(model)
    rng = np.random.default_rng(1)
    others = [
        {n: (a + rng.normal(scale=0.1, size=a.shape)).astype(np.float32) for n, a in first.items()}
        for _ in range(count)
    ]
    return {"same": [first] * count, "two": (others[:2] * count)[:count], "own": others}[way]


every_way = pytest.mark.parametrize("way", ["same", "two", "own"])
every_model = pytest.mark.parametrize("kind", list(MODELS))


def test_pools_hold_clients_with_the_same_key_and_not_too_many_samples():
    data = clients()
    found = pools([0, 0, 1, 0, 1, 1, 1], data)
    assert [each.clients if isinstance(each, Pool) else each for each in found] == [
        3,  # has no sample
        [1, 0],
        [4, 2],
        5,
        6,
    ]
    assert [len(each.clients) for each in pools([0] * 5, data[:1] * 5, most=2)[:2]] == [2, 2]


def test_a_pool_is_cut_where_padding_would_outweigh_its_samples():
    together = pools([0] * 21, clients([1] * 20 + [300]))
    assert [each if isinstance(each, int) else len(each.clients) for each in together] == [20, 20]


@every_way
@every_model
def test_features_are_those_one_by_one(kind, way):
    model, data = MODELS[kind](), [each for each in clients() if len(each)]
    arrays = models_of(model, way, len(data))
    found = features_of_all(model, arrays, data)
    expected = torch.cat([features_of(model, *each) for each in zip(arrays, data, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@every_way
@every_model
def test_losses_and_metrics_are_those_one_by_one(kind, way):
    model, data, problem = MODELS[kind](), clients(), Classification()
    arrays = models_of(model, way, len(data))
    each = list(zip(arrays, data, strict=True))
    for metrics in ((), (ACCURACY,), resolved(["accuracy", "perplexity", "loss"])):
        found = evaluate_all(model, arrays, data, problem, metrics)
        for own, one in zip(found, each, strict=True):
            assert own == pytest.approx(evaluate(model, *one, problem, metrics), 1e-6, nan_ok=True)
            assert list(own) == list(evaluate(model, *one, problem, metrics))
    losses = mean_losses(model, arrays, data, problem)
    assert losses == pytest.approx(
        [evaluate(model, *one, problem, ())["loss"] for one in each], 1e-6, nan_ok=True
    )
    full = [one for one in each if len(one[1])]
    assert root_mean_square_losses(model, *zip(*full, strict=True), problem) == pytest.approx(
        [root_mean_square_losses(model, *([each] for each in one), problem)[0] for one in full],
        1e-6,
    )


def test_samples_stay_with_their_client_where_a_model_mixes_them():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5, track_running_stats=False)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), norm, nn.Linear(5, 3))
    data = clients([3, 2, 4])
    arrays = models_of(model, "same", 3)
    each = list(zip(arrays, data, strict=True))
    assert mean_losses(model, arrays, data, Classification()) == [
        evaluate(model, *one, Classification(), ())["loss"] for one in each
    ]
    for (own, _), one in zip(rows_and_rivals_of_all(model, arrays, data), each, strict=True):
        np.testing.assert_array_equal(own, rows_and_rivals(model, *one)[0])


def test_problems_that_count_places_are_reduced_client_by_client():
    torch.manual_seed(0)
    model, problem = nn.Sequential(nn.Conv2d(1, 3, 1)), Segmentation()
    data = [Split(torch.randn(n, 1, 2, 2), torch.randint(0, 3, (n, 2, 2))) for n in (2, 5, 1)]
    data[0].y[0, 0, 0] = -100
    arrays, metrics = [read_arrays(model)] * 3, resolved(["accuracy", "mean-iou"])
    for own, samples in zip(evaluate_all(model, arrays, data, problem, metrics), data, strict=True):
        assert own == pytest.approx(evaluate(model, arrays[0], samples, problem, metrics), 1e-6)


@every_way
@every_model
@pytest.mark.parametrize("loss", [functional.cross_entropy, Classification().loss])
def test_fisher_diagonals_are_those_one_by_one(kind, way, loss):
    model, data = MODELS[kind](), [each for each in clients() if len(each)]
    arrays = models_of(model, way, len(data))
    found = fisher_diagonals(model, loss, arrays, data)
    for row, own, samples in zip(found, arrays, data, strict=True):
        load_arrays(model, own)
        expected = fisher_diagonal(model, loss, samples.x, samples.y)
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-9)


CLOSE: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}


@every_way
@every_model
def test_gradient_rows_are_those_one_by_one(kind, way):
    model, data = MODELS[kind](), [each for each in clients() if len(each)]
    arrays = models_of(model, way, len(data))
    each = list(zip(arrays, data, strict=True))
    for rule, per_class in (("crust", True), ("distance", True), ("distance", False)):
        rows = sample_rows_of_all(model, arrays, data, rule, per_class)
        for own, one in zip(rows, each, strict=True):
            np.testing.assert_allclose(own, sample_rows(model, *one, rule, per_class), **CLOSE)
    for pair, one in zip(rows_and_rivals_of_all(model, arrays, data), each, strict=True):
        for own, expected in zip(pair, rows_and_rivals(model, *one), strict=True):
            np.testing.assert_allclose(own, expected, **CLOSE)


def test_gradient_rows_without_classes():
    model, problem = nn.Sequential(nn.Linear(2, 1)), Regression()
    data = [Split(torch.randn(n, 2), torch.randn(n, 1)) for n in (2, 5, 1)]
    arrays = [read_arrays(model)] * 3
    rows = sample_rows_of_all(model, arrays, data, "distance", True, problem)
    for own, samples in zip(rows, data, strict=True):
        expected = sample_rows(model, arrays[0], samples, "distance", True, problem)
        np.testing.assert_allclose(own, expected, **CLOSE)


@every_way
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("aims", ["same", "own", "none"])
def test_values_of_samples_are_those_one_by_one(way, layers, aims):
    model, data, problem = chain(), clients(), Classification()
    config = read_config({"strategy": "ode-balanced", "ode.layers": layers})
    arrays, size = models_of(model, way, len(data)), valuation(model, config).size
    drawn = np.random.default_rng(2).normal(size=(len(data), size)).astype(np.float32)
    directions = {"same": [drawn[0]] * len(data), "own": list(drawn), "none": [None] * len(data)}[
        aims
    ]
    found = looked_at_all(model, config, problem, arrays, data, directions)
    for own, samples, direction, looked in zip(arrays, data, directions, found, strict=True):
        load_arrays(model, own)
        one = valuation(model, config, problem).look(samples.x, samples.y, direction)
        for name in ("losses", "norms", "values", "mean_gradient"):
            value, expected = getattr(looked, name), getattr(one, name)
            assert (value is None) == (expected is None)
            if value is not None:
                np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
                assert value.dtype == expected.dtype


@every_way
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_changes_are_those_one_by_one(way, dtype):
    rng = np.random.default_rng(0)

    def arrays() -> dict[str, Any]:
        weights = {
            n: rng.normal(size=shape).astype(dtype) for n, shape in (("w", (2, 3)), ("b", 3))
        }
        return {"first": weights["w"], "steps": np.array(7), "last": weights["b"]}

    before = {"same": [arrays()] * 3, "two": [arrays(), arrays()] * 2, "own": [arrays(), arrays()]}
    models = before[way]
    after = [arrays() for _ in models]
    table = Outcomes.of([Outcome(each, 0.0, 1, 1) for each in after])
    changes = table.changes(models)
    assert changes.dtype == np.float32
    expected = [flat_change(*pair) for pair in zip(models, after, strict=True)]
    np.testing.assert_array_equal(changes, np.stack(expected))
