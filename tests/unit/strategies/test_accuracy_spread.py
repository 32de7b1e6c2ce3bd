import numpy as np
import pytest
from flwr.app import MetricRecord
from forager.strategies.accuracy_spread import accuracy_spread


def records(accuracies: list[float]) -> list[MetricRecord]:
    return [MetricRecord({"accuracy": a, "loss": 1 - a, "num-examples": 3}) for a in accuracies]


def test_mean_tenths_and_variance() -> None:
    accuracies = list(np.random.default_rng(0).random(40))
    spread = accuracy_spread(records(accuracies))
    ordered = np.sort(accuracies)
    assert spread["accuracy-mean"] == pytest.approx(np.mean(accuracies))
    assert spread["accuracy-worst-10"] == pytest.approx(ordered[:4].mean())
    assert spread["accuracy-best-10"] == pytest.approx(ordered[-4:].mean())
    assert spread["accuracy-variance"] == pytest.approx(np.var(accuracies))
    assert spread["loss-mean"] == pytest.approx(1 - np.mean(accuracies))
    assert spread["clients"] == 40


def test_one_client_is_its_own_best_and_worst() -> None:
    spread = accuracy_spread(records([0.25]))
    assert spread["accuracy-worst-10"] == spread["accuracy-best-10"] == 0.25
    assert spread["accuracy-variance"] == 0


def test_what_is_missing_or_not_finite_is_left_out() -> None:
    odd = [
        MetricRecord({"accuracy": float("nan"), "loss": 1.0}),
        MetricRecord({"accuracy": 0.9, "loss": float("inf")}),
        MetricRecord({"accuracy": [0.1, 0.2], "loss": 1.0}),
        MetricRecord({"loss": 1.0}),
        MetricRecord(),
    ]
    assert accuracy_spread([*records([0.5, 0.7]), *odd])["clients"] == 2
    assert accuracy_spread(odd) == {}
    assert accuracy_spread([]) == {}
