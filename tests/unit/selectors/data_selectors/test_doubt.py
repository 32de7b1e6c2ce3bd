"""What doubted labels weigh."""

import numpy as np
import pytest
from forager.selectors.data_selectors.doubt import (
    MOST,
    chances,
    held_out_evidence,
    standards,
)
from forager.selectors.data_selectors.trust import MODEL, SERVER, label_evidence


def evidence(certainty: np.ndarray) -> np.ndarray:
    """Evidence of both judges that makes for this certainty."""
    return np.stack([SERVER * certainty, MODEL * certainty])


def clients(
    rate: float, rng: np.random.Generator, count: int = 4000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Trust in labels of an easy and a hard class, the labels, and which are right."""
    labels = rng.integers(0, 2, count)
    right = rng.random(count) >= rate
    doubted = np.where(right, rng.random(count) < np.where(labels, 0.18, 0.01), True)
    return evidence(np.where(doubted, 0.5, 2.0)), labels, right


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4])
def test_doubted_samples_weigh_as_much_as_they_are_right(rate: float) -> None:
    rng = np.random.default_rng(1)
    clean, classes, _ = clients(0.0, rng)
    standard = standards(clean, classes, 2)
    np.testing.assert_allclose(standard[0], 1)
    np.testing.assert_allclose(standard[1], [0.01, 0.18], atol=0.02)
    np.testing.assert_allclose(standard[2], 1)
    trust, labels, right = clients(rate, rng)
    weights = chances(trust, labels, standard)
    for label in (0, 1):
        doubted = (labels == label) & (trust[0] < SERVER)
        youden = 1 - (0.01 + 0.18) / 2
        expected = 1.0 if rate == 0 else 1 - youden * (1 - right[doubted].mean())
        np.testing.assert_allclose(weights[doubted], expected, atol=0.1)
    assert (weights[trust[0] >= SERVER] == 1).all()


def test_no_class_has_more_than_a_fifth_of_its_clean_samples_doubted() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 5, 2000)
    scores = rng.random(2000) * np.array([0.4, 0.9, 1.2, 3.0, 9.0])[labels]
    bars, doubted, _ = standards(evidence(scores), labels, 5)
    assert (bars <= 1).all()
    assert bars[0] < bars[1] < 1
    assert bars[4] == 1
    assert (doubted <= MOST + 0.01).all()
    np.testing.assert_allclose(doubted[:3], MOST, atol=0.01)


def test_classes_of_few_or_no_samples_have_a_standard_too() -> None:
    bars, doubted, _ = standards(evidence(np.array([0.5, 3.0, np.nan])), [0, 1, 3], 4)
    assert bars.tolist() == [0.5, 1.0, 1.0, 0.0]
    assert np.isfinite(doubted).all()
    assert standards(np.zeros((2, 0)), np.zeros(0, dtype=int), 2).tolist() == [
        [1, 1],
        [0, 0],
        [1, 1],
    ]


def test_doubt_that_says_little_counts_little() -> None:
    trust = evidence(np.array([2.0] * 60 + [0.1] * 40))
    weights = [
        chances(trust, np.zeros(100, dtype=int), [[1.0], [0.1], [noticed]])[-1]
        for noticed in (0.1, 0.4, 0.9)
    ]
    assert weights[0] == 1.0 > weights[1] > weights[2]


def test_wrong_labels_on_purpose_show_how_many_are_noticed() -> None:
    clean = evidence(np.full(10, 2.0)), np.arange(10) % 2
    wrong = evidence(np.array([0.5, 0.5, 3.0, 3.0])), np.array([0, 1, 0, 1])
    assert standards(*clean, 2, wrong)[2].tolist() == [0.5, 0.5]


def test_a_clean_sample_is_judged_by_others_not_by_itself() -> None:
    """Two far classes with an outlier: the mean that it is part of lies half way to it."""
    features = np.array([[0.0], [0.0], [4.0], [8.0], [0.1]])
    gradients = -0.5 * np.column_stack([np.ones(5), features])
    labels, rivals = [0, 0, 1, 1, 1], np.full(5, 0.5)
    means = np.array([gradients[:2].mean(axis=0), gradients[2:].mean(axis=0)])
    alone = label_evidence(gradients, labels, means, rivals)
    held_out = held_out_evidence(gradients, labels, rivals, 2)
    assert held_out[0, 4] <= alone[0, 4]
    assert held_out[0, 2] != alone[0, 2]


def test_without_a_standard_what_is_doubted_is_left_out() -> None:
    trust = evidence(np.array([1.0, 0.9, 0.2, np.nan]))
    assert chances(trust, [0, 0, 0, 0]).tolist() == [1, 0, 0, 0]
    assert chances(trust, [0, 0, 0, 0], at_least=2).tolist() == [1, 1, 0, 0]
    assert chances(trust, [0, 0, 0, 0], at_least=9).tolist() == [1, 1, 1, 0]


def test_a_few_doubts_are_chance_and_broken_samples_are_never_drawn() -> None:
    trust = evidence(np.array([2.0] * 8 + [0.1, np.nan]))
    weights = chances(trust, np.zeros(10, dtype=int), [[1.0], [0.05], [1.0]])
    assert weights.tolist() == [1] * 9 + [0]
    nothing = evidence(np.full(3, np.nan))
    assert chances(nothing, [0, 0, 0], [[1.0], [0.05], [1.0]], at_least=1).tolist() == [0, 0, 0]


def test_no_sample_weighs_more_than_one_however_little_its_class_is_doubted() -> None:
    labels = np.repeat([0, 1], 100)
    below = np.tile(np.arange(100), 2) < np.array([10, 90])[labels]
    trust = evidence(np.where(below, 0.1, 2.0))
    weights = chances(trust, labels, [[1.0, 1.0], [0.4, 0.05], [1.0, 1.0]])
    assert (weights[labels == 0] == 1).all()
    assert (weights[below & (labels == 1)] < 0.5).all()
