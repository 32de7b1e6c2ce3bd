import itertools
import math

import numpy as np
import pytest
from forager.selectors.similarities.valuation import (
    donor_values,
    kendall_agreement,
    kendall_tau,
    knn_shapley,
    recall_at,
)
from numpy.typing import NDArray
from scipy.stats import kendalltau


def plain_shapley(correct: list[int], k: int) -> NDArray[np.float64]:
    """Average each sample's marginal contribution over all orders."""

    def value(members: set[int]) -> float:
        return sum(correct[i] for i in sorted(members)[:k]) / k

    totals = np.zeros(len(correct))
    for order in itertools.permutations(range(len(correct))):
        members: set[int] = set()
        for sample in order:
            totals[sample] += value(members | {sample}) - value(members)
            members.add(sample)
    return totals / math.factorial(len(correct))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("correct", [[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1], [0, 0, 0]])
def test_knn_shapley_equals_the_average_over_all_orders(correct: list[int], k: int) -> None:
    np.testing.assert_allclose(knn_shapley(correct, k), plain_shapley(correct, k), atol=1e-12)


def test_knn_shapley_of_many_tests_is_that_of_each() -> None:
    correct = np.random.default_rng(0).integers(0, 2, (7, 50))
    values = knn_shapley(correct, 5)
    np.testing.assert_allclose(values[3], knn_shapley(correct[3], 5))
    np.testing.assert_allclose(values.sum(axis=1), correct[:, :5].mean(axis=1), atol=1e-12)


def test_recall_counts_the_oracles_neighbours_without_the_client_itself() -> None:
    oracle = np.random.default_rng(0).random((12, 12))
    assert recall_at(oracle, oracle, 4) == 1.0
    assert recall_at(-oracle, oracle, 11) == 1.0
    assert recall_at(-oracle, oracle, 5) == 0.0
    reversed_diagonal = oracle - 5 * np.eye(12)
    assert recall_at(reversed_diagonal, oracle, 4) == 1.0


def test_recall_of_chance_is_the_share_of_clients() -> None:
    rng = np.random.default_rng(0)
    scores, oracle = rng.random((2, 200, 200))
    assert recall_at(scores, oracle, 20) == pytest.approx(20 / 199, abs=0.02)


def test_kendall_tau_equals_scipys_with_ties() -> None:
    a, b = np.random.default_rng(0).integers(0, 6, (2, 40))
    assert kendall_tau(a, b) == pytest.approx(kendalltau(a, b).statistic)
    assert kendall_tau([1, 1, 1], [1, 2, 3]) == 0.0


def test_kendall_agreement_leaves_out_the_client_itself() -> None:
    oracle = np.random.default_rng(0).random((8, 8))
    assert kendall_agreement(oracle + 9 * np.eye(8), oracle) == pytest.approx(1.0)
    assert kendall_agreement(-oracle, oracle) == pytest.approx(-1.0)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="correct"):
        knn_shapley([], 1)
    with pytest.raises(ValueError, match="k: expected"):
        knn_shapley([1], 0)
    with pytest.raises(ValueError, match="k: expected"):
        recall_at(np.eye(3), np.eye(3), 3)
    with pytest.raises(ValueError, match="oracle"):
        kendall_agreement(np.eye(3), np.eye(4))
    with pytest.raises(ValueError, match="similarity"):
        kendall_agreement([[1.0]], [[1.0]])
    with pytest.raises(ValueError, match="donors"):
        donor_values(([[1.0]], [1]), [])
    with pytest.raises(ValueError, match="samples"):
        donor_values(([[1.0]], [1, 2]), [([[1.0]], [1])])


def test_a_donor_is_worth_the_sum_of_its_samples() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((30, 2, 3)), rng.integers(0, 3, 30)
    target = rng.random((4, 2, 3)), rng.integers(0, 3, 4)
    values = donor_values(target, [(x[:10], y[:10]), (x[10:15], y[10:15]), (x[15:], y[15:])], k=3)
    expected = np.zeros(30)
    for sample, label in zip(*target, strict=True):
        order = np.argsort(((x - sample) ** 2).sum(axis=(1, 2)), kind="stable")
        expected[order] += knn_shapley(y[order] == label, 3) / 4
    parts = np.split(expected, [10, 15])
    np.testing.assert_allclose(values, [part.sum() for part in parts], atol=1e-12)
