from itertools import product

import numpy as np
import pytest
from forager.selectors.data_selectors.matching_pursuit import matching_pursuit
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp

Floats = NDArray[np.float64]


def ridge_solution(rows: Floats, target: Floats, ridge: float) -> Floats:
    """The weights that minimise eq. 5, from scratch and without normal equations."""
    stacked = np.vstack([rows.T, np.sqrt(ridge) * np.eye(len(rows))])
    return np.linalg.lstsq(stacked, np.concatenate([target, np.zeros(len(rows))]))[0]


def by_the_book(
    gradients: Floats, target: Floats, budget: int, rule: str, ridge: float, step: int = 1
) -> tuple[list[int], Floats]:
    """Alg. 2 in plain steps, for gradients that are all finite; never stops early."""
    chosen: list[int] = []
    weights = np.zeros(0)
    while len(chosen) < min(budget, len(gradients)):
        residual = target - weights @ gradients[chosen]
        if rule == "distance":
            scores = ((gradients - residual) ** 2).sum(axis=1)
        else:
            scores = -(gradients @ residual)
        rest = [j for j in np.argsort(scores, kind="stable") if j not in chosen]
        chosen += [int(j) for j in rest[: min(step, budget - len(chosen))]]
        weights = ridge_solution(gradients[chosen], target, ridge)
    return chosen, weights


@pytest.mark.parametrize(("rule", "ridge"), [*product(["distance", "projection"], [0.0, 0.5])])
def test_agrees_with_the_paper_step_by_step(rule: str, ridge: float) -> None:
    for seed, step, scale in product(range(3), [1, 3], [0.1, 1.0, 30.0]):
        rng = np.random.default_rng(seed)
        gradients = scale * (rng.normal(size=(40, 25)) + 0.3)
        target = gradients.mean(axis=0) + 0.2 * scale * rng.normal(size=25)
        found = matching_pursuit(gradients, target, 17, rule, ridge, tolerance=0.0, step=step)
        chosen, weights = by_the_book(gradients, target, 17, rule, ridge, step)
        assert found.indices.tolist() == chosen
        np.testing.assert_allclose(found.weights, weights, rtol=1e-8, atol=1e-10)
        left = np.linalg.norm(target - weights @ gradients[chosen])
        np.testing.assert_allclose(found.residuals[-1], left, rtol=1e-8)
        assert len(found.residuals) == (17 if step == 1 else 6)


@pytest.mark.parametrize("rule", ["distance", "projection"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_carried_factor_stays_as_good_as_a_new_one_over_many_steps(
    rule: str, nonnegative: bool
) -> None:
    rng = np.random.default_rng(1)
    gradients = np.outer(rng.normal(size=300), rng.normal(size=150)) * 5  # nearly collinear
    gradients += rng.normal(size=(300, 150))
    target = gradients[:40].mean(axis=0)
    found = matching_pursuit(gradients, target, 120, rule, 0.5, 0.0, nonnegative=nonnegative)
    assert len(found.indices) == 120 or (nonnegative and len(found.residuals) > 100)
    weights = ridge_solution(gradients[found.indices], target, 0.5)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-7, atol=1e-12)


def test_float32_gradients_lose_nothing_in_the_weights() -> None:
    rng = np.random.default_rng(2)
    gradients = rng.normal(size=(500, 200)).astype(np.float32)
    target = gradients.mean(axis=0)
    found = matching_pursuit(gradients, target, 80, "projection", 0.5, 0.0)
    rows = gradients[found.indices].astype(np.float64)
    weights = ridge_solution(rows, target.astype(np.float64), 0.5)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-9, atol=1e-12)
    left = np.linalg.norm(target - weights @ rows)
    np.testing.assert_allclose(found.residuals[-1], left, rtol=1e-9)


def test_agrees_with_scikit_learn_without_a_ridge() -> None:
    """It takes the largest projection of either sign, so give it a target in a cone."""
    rng = np.random.default_rng(3)
    gradients = rng.random((60, 30)) + np.eye(60, 30)
    target = gradients[[4, 9, 11]].T @ np.array([1.0, 2.0, 3.0]) + 0.5 * rng.random(30)
    coefficients = orthogonal_mp(gradients.T, target, n_nonzero_coefs=5)
    found = matching_pursuit(gradients, target, 5, "projection", ridge=0.0, tolerance=0.0)
    assert sorted(found.indices.tolist()) == np.flatnonzero(coefficients).tolist()
    np.testing.assert_allclose(coefficients[found.indices], found.weights, rtol=1e-6)


def test_without_a_ridge_the_residual_falls_with_one_the_objective_does() -> None:
    rng = np.random.default_rng(4)
    gradients, target = rng.normal(size=(50, 30)), rng.normal(size=30)
    for rule in ("distance", "projection"):
        free = matching_pursuit(gradients, target, 25, rule, ridge=0.0, tolerance=0.0)
        assert (np.diff(free.residuals) < 0).all()
        objectives = []
        for budget in range(1, 26):
            held = matching_pursuit(gradients, target, budget, rule, ridge=2.0, tolerance=0.0)
            objectives.append(held.residuals[-1] ** 2 + 2.0 * (held.weights**2).sum())
        assert (np.diff(objectives) < 0).all()


def test_the_plain_greedy_is_near_the_best_subset_on_small_cases() -> None:
    """The rule without a fault does well where a release that picks points again stays at 0.6."""
    left = []
    for seed in range(20):
        gradients = np.random.default_rng(seed).random((30, 4))
        target = gradients.sum(axis=0)
        found = matching_pursuit(gradients, target, 12, "projection", nonnegative=True)
        assert len(found.indices) == 12
        left.append(found.residuals[-1] / np.linalg.norm(target))
    assert np.mean(left) < 0.035


def test_stops_when_the_target_is_met() -> None:
    gradients = np.eye(6)
    found = matching_pursuit(gradients, [3.0, 0, 2.0, 0, 0, 0], 6, "projection", ridge=0.0)
    assert found.indices.tolist() == [0, 2]
    assert found.residuals.tolist() == [2.0, 0.0]
    loose = matching_pursuit(gradients, [3.0, 0, 2.0, 0, 0, 0], 6, "projection", 0.0, tolerance=0.6)
    assert loose.indices.tolist() == [0]


def test_ties_go_to_the_lower_index_and_calls_repeat() -> None:
    gradients = np.repeat([[1.0, 0.0], [0.0, 1.0]], 3, axis=0)
    for rule in ("distance", "projection"):
        found = matching_pursuit(gradients, [1.0, 1.0], 6, rule, tolerance=0.0)
        assert found.indices.tolist() == [0, 3, 1, 4, 2, 5]
    together = matching_pursuit(gradients, [2.0, 1.0], 4, "projection", step=2)
    assert together.indices.tolist() == [0, 1, 3, 4]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_never_twice_never_too_many_always_solved(data: st.DataObject) -> None:
    size, length = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 4))
    few = st.sampled_from([-1.0, 0.0, 0.5, 2.0, float("nan"), float("inf")])
    cells = data.draw(st.lists(few, min_size=size * length, max_size=size * length))
    gradients = np.array(cells).reshape(size, length)
    target = np.array(
        data.draw(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=length, max_size=length))
    )
    budget, step = data.draw(st.integers(0, 15)), data.draw(st.integers(1, 4))
    rule = data.draw(st.sampled_from(["distance", "projection"]))
    nonnegative, ridge = data.draw(st.booleans()), data.draw(st.sampled_from([0.0, 0.5]))
    before = gradients.copy()
    found = matching_pursuit(gradients, target, budget, rule, ridge, 1e-4, step, nonnegative)
    np.testing.assert_array_equal(gradients, before)
    assert len(set(found.indices.tolist())) == len(found.indices) <= min(budget, size)
    rows = gradients[found.indices]
    assert np.isfinite(rows).all()
    assert not nonnegative or (found.weights >= 0).all()
    residual = target - found.weights @ rows
    # Where eq. 5 is lowest its slope is zero.
    np.testing.assert_allclose(rows @ residual, ridge * found.weights, atol=1e-8)


def test_nonnegative_weights_come_at_a_price_but_match() -> None:
    rng = np.random.default_rng(6)
    for rule, seed in product(("distance", "projection"), range(8)):
        gradients = np.random.default_rng(seed).normal(size=(60, 12))
        target = gradients[:20].mean(axis=0) + 0.1 * rng.normal(size=12)
        free = matching_pursuit(gradients, target, 30, rule)
        held = matching_pursuit(gradients, target, 30, rule, nonnegative=True)
        assert (held.weights > 0).all()
        assert held.residuals[-1] < 0.5 * np.linalg.norm(target)
        assert rule == "projection" or free.weights.min() < 0


def test_a_sample_let_go_does_not_come_back() -> None:
    """The first choice is between the two that make it superfluous, and then negative."""
    gradients = np.array([[3.0, 3.0, 0.5], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    found = matching_pursuit(gradients, [2.0, 2.0, -0.5], 3, "projection", 0.0, nonnegative=True)
    assert found.indices.tolist() == [1, 2]
    np.testing.assert_allclose(found.weights, [1.0, 1.0])


def test_rows_that_are_not_finite_are_never_chosen() -> None:
    gradients = np.ones((6, 3))
    gradients[[0, 3]] = np.nan
    gradients[4, 1] = -np.inf
    for rule in ("distance", "projection"):
        found = matching_pursuit(gradients, [1.0, 1.0, 1.0], 6, rule, tolerance=0.0)
        assert found.indices.tolist() == [1, 2, 5]
    assert len(matching_pursuit(np.full((3, 2), np.nan), [1.0, 1.0], 2).indices) == 0


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_all_gradients_zero(ridge: float) -> None:
    found = matching_pursuit(np.zeros((4, 2)), [1.0, 1.0], 3, ridge=ridge)
    assert found.indices.tolist() == [0, 1, 2]
    assert found.weights.tolist() == [0.0, 0.0, 0.0]
    assert found.residuals.tolist() == [np.sqrt(2)] * 3


def test_nothing_to_match_nothing_to_choose_from_no_budget() -> None:
    assert len(matching_pursuit(np.ones((3, 2)), [0.0, 0.0], 2).indices) == 0
    assert len(matching_pursuit(np.ones((0, 2)), [1.0, 0.0], 2).indices) == 0
    none = matching_pursuit(np.ones((3, 2)), [1.0, 0.0], 0)
    assert (len(none.indices), len(none.weights), len(none.residuals)) == (0, 0, 0)
    assert none.indices.dtype == np.intp


def test_repeated_gradients_without_a_ridge_get_no_weight_twice() -> None:
    gradients = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.1]])
    found = matching_pursuit(gradients, [1.0, 3.0], 3, ridge=0.0, tolerance=0.0)
    assert sorted(found.indices.tolist()) == [0, 1, 2]
    np.testing.assert_allclose(found.weights @ gradients[found.indices], [1.0, 3.0])


@pytest.mark.parametrize("order", ["F", "sliced"])
def test_any_layout_in_memory_will_do(order: str) -> None:
    gradients = np.random.default_rng(7).normal(size=(30, 8))
    other = (
        np.asfortranarray(gradients) if order == "F" else np.repeat(gradients, 2, axis=1)[:, ::2]
    )
    expected = matching_pursuit(gradients, gradients[3], 5)
    assert matching_pursuit(other, gradients[3], 5).indices.tolist() == expected.indices.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gradients": np.ones(3)}, r"gradients: expected one row per sample, got shape \(3,\)"),
        ({"target": [1.0]}, r"target: expected 2 values as in a row, got \(1,\)"),
        ({"target": [1.0, np.nan]}, "target: expected finite values"),
        ({"budget": -1}, "budget: expected 0 or more, got -1"),
        ({"rule": "nearest"}, r"rule: expected one of distance, projection, got 'nearest'"),
        ({"ridge": -0.5}, "ridge: expected a finite number from 0 on, got -0.5"),
        ({"ridge": float("nan")}, "ridge: expected a finite number from 0 on, got nan"),
        ({"tolerance": -1.0}, "tolerance: expected a number from 0 on, got -1.0"),
        ({"step": 0}, "step: expected 1 or more, got 0"),
    ],
)
def test_errors_name_the_argument(changes: dict, message: str) -> None:
    arguments = {"gradients": np.ones((3, 2)), "target": [1.0, 1.0], "budget": 2} | changes
    with pytest.raises(ValueError, match=message):
        matching_pursuit(**arguments)


@pytest.mark.parametrize("rule", ["distance", "projection"])
def test_the_total_is_the_mean_times_the_budget(rule: str) -> None:
    rng = np.random.default_rng(5)
    gradients = rng.normal(size=(40, 10)) + 0.5
    target = gradients.mean(axis=0)
    total = matching_pursuit(gradients, target, 8, rule, tolerance=0.0, residual="total")
    chosen, weights = by_the_book(gradients, 8 * target, 8, rule, 0.5)
    assert total.indices.tolist() == chosen
    np.testing.assert_allclose(total.weights, weights, rtol=1e-8)
    assert matching_pursuit(gradients[:3], target, 8, rule, residual="total").indices.size == 3


def test_the_plain_mean_comes_closer_than_the_samples_of_a_weighted_sum() -> None:
    """In training all samples count the same: their plain mean is the step that is made."""
    closer = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        gradients = rng.normal(size=(200, 5)) + 1.0
        target = gradients[:50].mean(axis=0)
        left = {}
        for residual in ("mean", "total", "plain-mean", "printed"):
            found = matching_pursuit(gradients, target, 20, residual=residual)
            left[residual] = np.linalg.norm(target - gradients[found.indices].mean(axis=0))
        assert left["plain-mean"] < 0.1
        closer += left["plain-mean"] == min(left.values())
    assert closer == 10


def test_the_plain_mean_step_by_step() -> None:
    rng = np.random.default_rng(6)
    gradients, target = rng.normal(size=(30, 4)), rng.normal(size=4)
    found = matching_pursuit(gradients, target, 12, residual="plain-mean")
    chosen: list[int] = []
    for _ in range(12):
        rest = [j for j in range(30) if j not in chosen]
        wanted = (len(chosen) + 1) * target - gradients[chosen].sum(axis=0)
        chosen.append(min(rest, key=lambda j: np.linalg.norm(gradients[j] - wanted)))
    assert found.indices.tolist() == chosen
    np.testing.assert_allclose(found.weights, 1 / 12)
    left = np.linalg.norm(target - gradients[chosen].mean(axis=0))
    np.testing.assert_allclose(found.residuals[-1], left)
    assert len(found.residuals) == 12
    in_steps = matching_pursuit(gradients, target, 12, residual="plain-mean", step=5)
    assert (len(in_steps.indices), len(in_steps.residuals)) == (12, 3)


def test_the_plain_mean_spends_the_budget_on_what_is_finite() -> None:
    gradients = np.ones((6, 2))
    gradients[2, 0] = np.nan
    found = matching_pursuit(gradients, [1.0, 1.0], 9, residual="plain-mean")
    assert found.indices.tolist() == [0, 1, 3, 4, 5]
    nobody = matching_pursuit(gradients, [1.0, 1.0], 0, residual="plain-mean")
    assert nobody.indices.tolist() == nobody.weights.tolist() == []
    zero = matching_pursuit(gradients, [0.0, 0.0], 2, residual="plain-mean")
    assert zero.indices.tolist() == [0, 1]


def test_as_printed_the_residual_changes_its_sign() -> None:
    """Algorithm 2 to the letter, step by step."""
    rng = np.random.default_rng(7)
    gradients = rng.normal(size=(30, 6))
    target = gradients.mean(axis=0)
    found = matching_pursuit(gradients, target, 9, tolerance=0.0, residual="printed")
    chosen: list[int] = []
    residual, norms = target, []
    for _ in range(9):
        rest = [j for j in range(30) if j not in chosen]
        chosen.append(min(rest, key=lambda j: np.linalg.norm(gradients[j] - residual)))
        weights = ridge_solution(gradients[chosen], target, 0.5)
        residual = weights @ gradients[chosen] - residual
        norms.append(np.linalg.norm(residual))
    assert found.indices.tolist() == chosen
    np.testing.assert_allclose(found.weights, weights, rtol=1e-8)
    np.testing.assert_allclose(found.residuals, norms, rtol=1e-8)


def test_an_unknown_residual_is_named() -> None:
    with pytest.raises(ValueError, match=r"residual: expected one of .*plain-mean.*, got 'median'"):
        matching_pursuit(np.ones((2, 2)), [1.0, 1.0], 1, residual="median")
