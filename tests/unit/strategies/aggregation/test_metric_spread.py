import numpy as np
import pytest
from flwr.app import MetricRecord
from forager.core.log.events import Spread
from forager.core.tasks.metrics import ACCURACY, Metric
from forager.strategies.aggregation.metric_spread import metric_spread

MAE = Metric("mae", higher_is_better=False)


def records(accuracies: list[float]) -> list[MetricRecord]:
    return [MetricRecord({"accuracy": a, "loss": 1 - a, "num-examples": 3}) for a in accuracies]


def accuracy_of(told: list[MetricRecord]) -> Spread:
    found = metric_spread(told)
    assert found is not None
    assert found.spread is not None
    return found.spread["accuracy"]


def test_mean_tenths_and_variance() -> None:
    accuracies = list(np.random.default_rng(0).random(40))
    found, spread = (
        metric_spread(records(accuracies), server_round=7),
        accuracy_of(records(accuracies)),
    )
    ordered = np.sort(accuracies)
    assert spread.mean == pytest.approx(np.mean(accuracies))
    assert spread.worst_10 == pytest.approx(ordered[:4].mean())
    assert spread.best_10 == pytest.approx(ordered[-4:].mean())
    assert spread.variance == pytest.approx(np.var(accuracies))
    assert found is not None
    assert found.loss == pytest.approx(1 - np.mean(accuracies))
    assert (found.round, found.where, found.clients) == (7, "clients", 40)


def test_one_client_is_its_own_best_and_worst() -> None:
    spread = accuracy_of(records([0.25]))
    assert spread.worst_10 == spread.best_10 == 0.25
    assert spread.variance == 0


def test_the_worst_have_the_largest_error() -> None:
    errors = [MetricRecord({"mae": float(e), "loss": 1.0}) for e in range(20)]
    found = metric_spread(errors, [MAE])
    assert found is not None
    assert found.spread is not None
    assert (found.spread["mae"].worst_10, found.spread["mae"].best_10) == (18.5, 0.5)


def test_only_the_runs_own_metrics_are_taken_each_where_it_makes_sense() -> None:
    told = [
        MetricRecord({"mae": 2.0, "r2": 0.5, "loss": 1.0, "best-client-ever": 1.0}),
        MetricRecord({"mae": 4.0, "r2": float("nan"), "loss": 1.0}),
        MetricRecord({"mae": 1e13, "r2": 0.5, "loss": 1.0}),
    ]
    found = metric_spread(told, [MAE, Metric("r2"), Metric("auc", share=True)])
    assert found is not None
    assert found.spread is not None
    assert found.clients == 2
    assert {name: spread.mean for name, spread in found.spread.items()} == {"mae": 3.0, "r2": 0.5}


def test_what_is_missing_or_not_finite_is_left_out() -> None:
    odd = [
        MetricRecord({"accuracy": float("nan"), "loss": 1.0}),
        MetricRecord({"accuracy": 0.9, "loss": float("inf")}),
        MetricRecord({"accuracy": [0.1, 0.2], "loss": 1.0}),
        MetricRecord({"accuracy": 1.5, "loss": 1.0}),
        MetricRecord({"loss": 1.0}),
        MetricRecord(),
    ]
    found = metric_spread([*records([0.5, 0.7]), *odd], [ACCURACY])
    assert found is not None
    assert found.clients == 4  # two of which do not know their accuracy
    assert found.spread is not None
    assert found.spread["accuracy"].mean == pytest.approx(0.6)
    assert metric_spread(odd) is None
    assert metric_spread([]) is None
