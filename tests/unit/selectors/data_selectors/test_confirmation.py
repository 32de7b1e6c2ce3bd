"""Samples whose label the server's gradients bear out."""

from typing import Any

import numpy as np
import pytest
from forager.selectors.data_selectors.confirmation import confirmation, draw, own_means

CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
TARGETS = -0.3 * np.column_stack([np.ones(3), CENTRES])


def gradients(features: Any, lacking: Any = 0.5) -> Any:
    """Rows ``(p - 1) [1, h]``."""
    inputs = np.asarray(features, dtype=float)
    return -np.reshape(lacking, (-1, 1)) * np.column_stack([np.ones(len(inputs)), inputs])


def confirmed(rows: Any, labels: Any, targets: Any = TARGETS) -> list[int]:
    """Samples that are not twice as near to another class, by squared distances."""
    return np.flatnonzero(confirmation(rows, labels, targets) >= 1 / 3).tolist()


def noisy(size: int, rate: float, seed: int = 0) -> tuple[Any, Any, Any]:
    """Gradients, labels of which some are wrong, and which are right."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, size)
    clean = rng.random(size) >= rate
    labels = np.where(clean, truth, (truth + rng.integers(1, 3, size)) % 3)
    features = CENTRES[truth] + rng.normal(size=(size, 2))
    return gradients(features, rng.uniform(0.01, 0.99, size)), labels, clean


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6])
def test_wrong_labels_go_and_right_ones_stay_however_many_are_wrong(rate: float) -> None:
    rows, labels, clean = noisy(3000, rate)
    kept = np.zeros(3000, dtype=bool)
    kept[confirmed(rows, labels)] = True
    assert kept[clean].mean() > 0.97
    assert not rate or kept[~clean].mean() < 0.1


def test_how_much_a_sample_has_been_learnt_does_not_matter() -> None:
    rows, labels, _ = noisy(200, 0.4)
    faint = rows * np.random.default_rng(1).uniform(1e-6, 1, (200, 1))
    assert confirmed(rows, labels) == confirmed(faint, labels)
    assert confirmed(rows, labels) == confirmed(rows, labels, 0.01 * TARGETS)


def test_it_is_a_ratio_of_squared_distances() -> None:
    rows = gradients([[2.2, 0.0]])  # 4.84 from its own prototype, 3.24 from the other
    np.testing.assert_allclose(confirmation(rows, [0], TARGETS), 3.24 / (3.24 + 4.84))


def test_a_class_the_server_does_not_have_is_no_prototype_and_its_samples_are_confirmed() -> None:
    # As core.learning.gradients has it: the mean of p [1, h] over other classes' samples
    unknown = TARGETS.copy()
    unknown[1] = 0.05 * np.array([1.0, 0.1, 0.1])
    rows = gradients([[0.1, 0.1], [4.0, 0.0], [0.0, 4.0], [0.0, 4.0]])
    labels = [0, 1, 1, 0]
    assert confirmed(rows, labels, unknown) == [0, 1, 2]
    unknown[1] = np.nan
    assert confirmed(rows, labels, unknown) == [0, 1, 2]


def test_nothing_to_compare_with() -> None:
    rows, labels, _ = noisy(20, 0.4)
    everyone = list(range(20))
    assert confirmed(rows, labels, np.zeros_like(TARGETS)) == everyone
    assert confirmed(rows, [0] * 20, TARGETS[:1]) == everyone
    with np.errstate(all="raise"):  # a gradient of zero has no direction
        assert confirmed(np.zeros_like(rows), labels) == everyone
    same = np.repeat(TARGETS[:1], 3, axis=0)  # all prototypes in one place
    assert confirmed(rows, labels, same) == everyone
    assert confirmed(rows[:0], labels[:0]) == []


def test_of_rows_that_are_not_finite_nothing_is_said() -> None:
    rows = gradients([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    rows[0, 1], rows[1, 0] = np.nan, np.inf
    assert np.isnan(confirmation(rows, [0, 0, 0], TARGETS)).tolist() == [True, True, False]


def test_draws_are_seeded_and_in_proportion() -> None:
    rng = np.random.default_rng(0)
    hits = np.zeros(4)
    for _ in range(4000):
        hits[draw([1.0, 2.0, 5.0, 0.0], 1, rng)] += 1
    np.testing.assert_allclose(hits / 4000, [0.125, 0.25, 0.625, 0], atol=0.03)
    one, other = (draw(np.ones(50), 10, np.random.default_rng(3)) for _ in range(2))
    assert one.tolist() == other.tolist() == sorted(set(one.tolist()))


def test_who_lacks_nothing_comes_last_but_comes() -> None:
    weights = [0.0, 0.3, 0.0, 0.0]
    firsts = {draw(weights, 2, np.random.default_rng(seed)).tolist()[0] for seed in range(40)}
    assert firsts == {0, 1}
    assert all(1 in draw(weights, 1, np.random.default_rng(seed)) for seed in range(40))
    assert draw(weights, 9, np.random.default_rng(0)).tolist() == [0, 1, 2, 3]
    assert draw([], 3, np.random.default_rng(0)).tolist() == []
    assert draw(weights, 0, np.random.default_rng(0)).tolist() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gradients": np.ones(3)}, r"gradients: expected rows of a bias and weights, got shape"),
        ({"targets": np.ones((3, 2))}, "targets: expected 3 values each, got 2"),
        ({"labels": [0]}, r"labels: expected 2, one per row, got shape \(1,\)"),
        ({"labels": [0, 3]}, "labels: expected 0 to 2, got 3"),
        ({"labels": [-1, 0]}, "labels: expected 0 to 2, got -1"),
    ],
)
def test_errors_name_the_argument(changes: dict, message: str) -> None:
    arguments = {"gradients": np.ones((2, 3)), "labels": [0, 1], "targets": TARGETS, **changes}
    with pytest.raises(ValueError, match=message):
        confirmation(**arguments)
    with pytest.raises(ValueError, match="budget: expected 0 or more, got -1"):
        draw([1.0], -1, np.random.default_rng(0))


def test_own_means_leave_out_what_is_not_finite() -> None:
    rows, labels, _ = noisy(100, 0.0)
    broken = np.concatenate([rows, np.full((3, 3), np.nan)])
    means = own_means(broken, np.concatenate([labels, [0, 1, 2]]))
    np.testing.assert_allclose(means, [rows[labels == c].mean(axis=0) for c in range(3)])
    assert own_means(rows[:0], labels[:0]).shape == (0, 3)
