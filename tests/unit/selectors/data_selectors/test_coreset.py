from typing import Any

import numpy as np
import pytest
from forager.core.learning.gradients import (
    class_mean_gradients,
    class_slice_gradients,
    logit_gradients,
)
from forager.selectors.data_selectors.coreset import RULES, RuleSettings, choose_coreset
from forager.selectors.data_selectors.matching_pursuit import matching_pursuit
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

GUIDED = ("distance", "projection", "nearest")


def choose(rule: str, rows: Any, labels: Any, budget: int, targets: Any = None) -> Any:
    return choose_coreset(rule, rows, labels, budget, targets, np.random.default_rng(0))


def clients_data(seed: int = 0, size: int = 90) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Rows, labels and targets of three classes, of 1/2, 1/3 and 1/6 of the samples."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat([0, 1, 2], [size // 2, size // 3, size // 6]))
    centres = 3 * rng.normal(size=(3, 8))
    return centres[labels] + rng.normal(size=(size, 8)), labels, centres


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "full"])
def test_every_class_gives_its_part(rule: str) -> None:
    rows, labels, targets = clients_data()
    coreset = choose(rule, rows, labels, 12, targets)
    assert np.bincount(labels[coreset.indices]).tolist() == [6, 4, 2]
    assert len(coreset) == 12
    for label in range(3):
        own = coreset.weights[labels[coreset.indices] == label]
        assert own.mean() == pytest.approx(1)
        assert (own >= 0).all()


def test_a_class_is_chosen_as_if_it_were_alone() -> None:
    rows, labels, targets = clients_data()
    for rule in RULES[2:]:
        coreset = choose(rule, rows, labels, 12, targets)
        for label in range(3):
            own = np.flatnonzero(labels == label)
            alone = choose(
                rule, rows[own], np.zeros(len(own), int), 12 * len(own) // 90, targets[[label]]
            )
            mine = labels[coreset.indices] == label
            assert coreset.indices[mine].tolist() == own[alone.indices].tolist()
            np.testing.assert_allclose(coreset.weights[mine], alone.weights)


def test_distance_and_projection_are_the_two_rules_of_matching_pursuit() -> None:
    """Distance is GCFL's; projection, with weights that are not negative, is GradMatch's."""
    rows, labels, targets = clients_data()
    own = np.flatnonzero(labels == 1)
    for rule in ("distance", "projection"):
        nonnegative = rule == "projection"
        found = matching_pursuit(rows[own], targets[1], 4, rule, nonnegative=nonnegative)
        coreset = choose(rule, rows, labels, 12, targets)
        mine = labels[coreset.indices] == 1
        assert coreset.indices[mine].tolist() == sorted(own[found.indices].tolist())
        weights = np.maximum(found.weights, 0)[np.argsort(found.indices)]
        np.testing.assert_allclose(coreset.weights[mine], weights / weights.mean())


def test_settings_reach_the_rules() -> None:
    rows, labels, targets = clients_data()
    for settings in (
        RuleSettings(ridge=50.0),
        RuleSettings(ridge=4.0),
        RuleSettings(nonnegative=True),
    ):
        changed = choose_coreset("distance", rows, labels, 40, targets, settings=settings)
        plain = choose_coreset("distance", rows, labels, 40, targets)
        same = changed.indices.tolist() == plain.indices.tolist()
        assert not same or not np.allclose(changed.weights, plain.weights)
    near, far = (
        choose_coreset("crust", rows, labels, 12, settings=RuleSettings(radius=radius))
        for radius in (0.1, 100.0)
    )
    assert near.weights.tolist() == far.weights.tolist() == [1.0] * 12
    assert near.indices.tolist() != far.indices.tolist()


@pytest.mark.parametrize("rule", ["distance", "projection"])
def test_what_the_pursuit_leaves_open_is_filled_with_the_next_nearest(rule: str) -> None:
    rows = np.array([[5.0, 5.0], [1.0, 0.0], [1.0, 0.4], [1.0, 0.2], [-9.0, 1.0]])
    settings = RuleSettings(ridge=0.0)
    coreset = choose_coreset(rule, rows, [0] * 5, 3, [[1.0, 0.0]], settings=settings)
    expected = [1, 2, 3] if rule == "distance" else [0, 1, 3]
    assert coreset.indices.tolist() == expected
    assert coreset.weights[coreset.indices == 3].tolist() == [1.0]


def test_a_class_the_server_does_not_know_matches_its_own_mean() -> None:
    rows, labels, targets = clients_data()
    targets[1] = np.nan
    for rule in GUIDED:
        known = targets.copy()
        known[1] = rows[labels == 1].mean(axis=0)
        coreset, expected = (choose(rule, rows, labels, 12, t) for t in (targets, known))
        assert coreset.indices.tolist() == expected.indices.tolist()
        everything = np.array([rows[labels == label].mean(axis=0) for label in range(3)])
        without, own = (choose(rule, rows, labels, 12, t) for t in (None, everything))
        assert without.indices.tolist() == own.indices.tolist()


@pytest.mark.parametrize("rule", RULES)
def test_a_class_the_client_does_not_have(rule: str) -> None:
    rows, labels, targets = clients_data()
    rows, labels = rows[labels != 1], labels[labels != 1]
    coreset = choose(rule, rows, labels, 12, targets)
    expected = np.bincount(labels) if rule == "full" else [9, 0, 3]
    assert np.bincount(labels[coreset.indices]).tolist() == list(expected)


@pytest.mark.parametrize("rule", RULES)
def test_a_class_of_one_sample_leaves_its_part_to_the_others(rule: str) -> None:
    rows, labels = (
        np.random.default_rng(1).normal(size=(9, 2)),
        np.array([1, 0, 0, 0, 0, 0, 0, 0, 0]),
    )
    targets = np.ones((2, 2))
    few = choose(rule, rows, labels, 5, targets)
    assert (0 in few.indices) == (rule == "full")
    assert len(few) == (9 if rule == "full" else 5)
    assert choose(rule, rows, labels, 9, targets).indices.tolist() == list(range(9))
    assert choose(rule, rows[:1], labels[:1], 1, targets).indices.tolist() == [0]
    assert choose(rule, rows[:1], labels[:1], 1, targets).weights.tolist() == [1.0]


@pytest.mark.parametrize("rule", RULES)
def test_no_budget_too_much_budget_no_data(rule: str) -> None:
    rows, labels, targets = clients_data()
    assert len(choose(rule, rows, labels, 0, targets)) == (90 if rule == "full" else 0)
    assert choose(rule, rows, labels, 1000, targets).indices.tolist() == list(range(90))
    none = choose(rule, rows[:0], labels[:0], 5, targets)
    assert len(none) == 0
    assert none.indices.dtype == np.intp


@pytest.mark.parametrize("rule", RULES)
def test_samples_that_are_not_finite_are_never_chosen(rule: str) -> None:
    rows, labels, targets = clients_data()
    broken = np.flatnonzero(labels == 0)[::2]
    rows[broken, 0] = np.nan
    rows[broken[0], 0] = np.inf
    for budget in (12, 1000):
        coreset = choose(rule, rows, labels, budget, targets)
        assert not set(coreset.indices.tolist()) & set(broken.tolist())
        assert np.isfinite(coreset.weights).all()
        assert len(coreset) == (12 if budget == 12 and rule != "full" else 90 - len(broken))
    assert len(choose(rule, np.full((5, 8), np.nan), [0] * 5, 3, targets)) == 0


@pytest.mark.parametrize("rule", RULES)
def test_all_gradients_zero(rule: str) -> None:
    labels = np.array([0] * 6 + [1] * 4)
    for targets in (np.ones((2, 3)), np.zeros((2, 3)), None):
        coreset = choose(rule, np.zeros((10, 3)), labels, 5, targets)
        assert len(coreset) == (10 if rule == "full" else 5)
        assert coreset.weights.mean() == pytest.approx(1)


def test_random_and_full_need_no_rows() -> None:
    labels = [0] * 8 + [1] * 4
    assert len(choose("random", None, labels, 6)) == 6
    assert choose("full", None, labels, 6).indices.tolist() == list(range(12))


def test_labels_may_be_far_apart() -> None:
    coreset = choose("nearest", np.ones((6, 1)), [7, 7, 7, 10**12, 10**12, 10**12], 4)
    assert coreset.indices.tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "gclf"}, "rule: expected one of full, random, .*, got 'gclf'"),
        ({"budget": -1}, "budget: expected 0 or more, got -1"),
        ({"rows": None}, "rows: expected one per sample for the rule 'distance', got none"),
        ({"rows": np.ones(4)}, r"rows: expected one per sample, got shape \(4,\)"),
        (
            {"targets": np.ones((2, 3))},
            r"targets: expected one per class, 2 values each, got \(2, 3\)",
        ),
        ({"labels": [0, 1, 0]}, "labels: expected 4 as there are rows, got 3"),
        ({"labels": [0, 1, 2, 0]}, "labels: expected 0 to 1, got 2"),
        ({"labels": [0, 1, -1, 0]}, "labels: expected 0 to 1, got -1"),
        ({"labels": [0.0, 1.5, 1.0, 0.0]}, "labels: expected whole numbers, one per sample, got"),
        ({"rule": "random", "rng": None}, "rng: expected a generator for the rule 'random'"),
    ],
)
def test_errors_name_the_argument(changes: dict, message: str) -> None:
    arguments = {
        "rule": "distance",
        "rows": np.ones((4, 2)),
        "labels": [0, 1, 0, 1],
        "budget": 2,
        "targets": np.ones((2, 2)),
    }
    with pytest.raises(ValueError, match=message):
        choose_coreset(**(arguments | changes))


def clean_shares(epochs: int, spread: float, seed: int) -> dict[str, float]:
    """The paper's toy: ten blobs, 40 % of the labels flipped, softmax regression, budget 10 %."""
    features, truth = make_blobs(2400, 10, centers=10, cluster_std=spread, random_state=seed)
    rng = np.random.default_rng(seed)
    server, server_truth = features[:400], truth[:400]
    features, truth = features[400:], truth[400:]
    flipped = rng.permutation(2000)[:800]
    labels = truth.copy()
    labels[flipped] = (truth[flipped] + rng.integers(1, 10, 800)) % 10
    weight, bias = 0.01 * rng.normal(size=(10, 10)), np.zeros(10)
    for batch in np.concatenate(
        [rng.permutation(2000).reshape(-1, 20) for _ in range(epochs)] or [()]
    ):
        errors = logit_gradients(features[batch], weight, bias, labels[batch])
        weight -= 0.01 * errors.T @ features[batch] / 20
        bias -= 0.01 * errors.mean(axis=0)
    rows = class_slice_gradients(features, weight, bias, labels)
    targets = class_mean_gradients(server, weight, bias, server_truth)
    chosen = {
        rule: choose(rule, rows, labels, 200, targets).indices for rule in (*GUIDED, "random")
    }
    return {rule: float((truth[picks] == labels[picks]).mean()) for rule, picks in chosen.items()}


@pytest.mark.parametrize("spread", [2.0, 4.0])
def test_picks_less_noise_than_chance_once_the_model_has_learnt_a_little(spread: float) -> None:
    """A faulty solver picks more noise than chance does: 0.42 to 0.45 of its picks are clean."""
    runs = [clean_shares(2, spread, seed) for seed in range(2)]
    share = {rule: np.mean([run[rule] for run in runs]) for rule in runs[0]}
    assert 0.5 < share["random"] < 0.7
    assert share["distance"] > 0.85
    assert share["projection"] > 0.75
    assert share["nearest"] > 0.99


def test_the_nearest_are_clean_before_any_training() -> None:
    share = clean_shares(0, 2.0, seed=0)
    assert share["nearest"] > 0.99
    assert share["projection"] > share["random"] + 0.1
