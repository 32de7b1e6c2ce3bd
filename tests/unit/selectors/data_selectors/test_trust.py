"""Trust in labels over several looks."""

from typing import Any

import numpy as np
import pytest
from forager.selectors.data_selectors.trust import (
    MODEL,
    SERVER,
    label_evidence,
    remembered,
    trusted,
)

CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
TARGETS = -0.3 * np.column_stack([np.ones(3), CENTRES])


def rows(features: Any, chance: Any) -> Any:
    """Gradients ``(p - 1) [1, h]`` of samples whose label has the probability ``chance``."""
    inputs = np.column_stack([np.ones(len(features)), np.asarray(features, dtype=float)])
    return (np.reshape(chance, (-1, 1)) - 1) * inputs


def test_evidence_is_that_of_the_server_and_that_of_the_model() -> None:
    found = label_evidence(
        rows([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [0.6, 0.1, 0.2]),
        [0, 1, 0],
        TARGETS,
        [0.2, 0.8, 0.2],
    )
    # The model knows the server's samples by 0.7
    model = 0.5 + 0.7 * (np.array([0.75, 1 / 9, 0.5]) - 0.5)
    np.testing.assert_allclose(found, [[0.9, 0.1, 0.5], model], atol=1e-12)


def test_a_model_that_does_not_know_a_class_has_no_say_in_it() -> None:
    unlearnt = TARGETS * np.array([[3.3], [0.0], [1.0]])
    unlearnt[1, 0] = -0.0
    samples = rows([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], [0.0, 0.0, 0.0])
    found = label_evidence(samples, [0, 1, 2], unlearnt, [0.9, 0.9, 0.9])
    np.testing.assert_allclose(found[1], [0.5 - 0.5 * 0.01, 0.5, 0.5 - 0.5 * 0.7], atol=1e-12)
    unlearnt[2] = np.nan  # the server has no sample of it
    assert label_evidence(samples, [0, 1, 2], unlearnt, [0.9, 0.9, 0.9])[:, 2].tolist() == [1, 0.5]


def test_a_certain_model_leaves_nothing_undefined() -> None:
    with np.errstate(all="raise"):
        sure = label_evidence(np.zeros((2, 3)), [0, 1], TARGETS, [0.0, 0.0])
        wrong = label_evidence(rows([[0.0, 0.0]], [0.0]), [0], TARGETS, [1.0])
        nobody = label_evidence(rows([[0.0, 0.0]], [0.0]), [0], TARGETS, [0.0])
    np.testing.assert_allclose(sure[1], [0.85, 0.85])
    np.testing.assert_allclose([wrong[1, 0], nobody[1, 0]], [0.15, 0.5])


def test_samples_that_are_not_finite_are_never_trusted_until_they_are() -> None:
    broken = rows([[0.0, 0.0], [0.0, 0.0]], [0.5, 0.5])
    broken[0, 1] = np.nan
    evidence = label_evidence(broken, [0, 0], TARGETS, [0.1, np.nan])
    assert np.isnan(evidence).all()
    trust = remembered(None, evidence, [False, False])
    assert trusted(trust, at_least=2).tolist() == []
    mended = remembered(trust, np.ones((2, 2)), [False, False])
    assert mended.tolist() == np.ones((2, 2)).tolist()
    assert trusted(remembered(mended, evidence, [False, False]), at_least=2).tolist() == []


def test_a_label_learnt_by_heart_stays_distrusted_and_a_clean_one_recovers() -> None:
    """The model confirms both now. One of them was trained on, against what was known of it."""
    trust = remembered(None, np.array([[0.2, 0.2], [0.1, 0.1]]), [False, False])
    for _ in range(20):
        trust = remembered(trust, np.ones((2, 2)), [True, False])
    assert trusted(trust).tolist() == [1]


def test_one_bad_look_is_not_enough_but_several_are() -> None:
    trust = remembered(None, np.full((2, 1), 0.9), [False])
    kept = []
    for _ in range(4):
        trust = remembered(trust, np.full((2, 1), 0.1), [True], memory=0.7)
        kept.append(len(trusted(trust)))
    assert kept == [1, 1, 0, 0]


def test_both_judges_count_and_the_nearest_make_up_for_what_is_missing() -> None:
    trust = np.array([[SERVER, SERVER - 0.01, 1.0, 1.0], [MODEL, 1.0, MODEL - 0.1, 1.0]])
    assert trusted(trust).tolist() == [0, 3]
    assert trusted(trust, at_least=3).tolist() == [0, 1, 3]
    assert trusted(trust, at_least=9).tolist() == [0, 1, 2, 3]
    assert trusted(np.zeros((2, 0)), at_least=3).tolist() == []


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4, 0.6])
def test_wrong_labels_go_and_right_ones_stay_however_many_are_wrong(rate: float) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 3000)
    clean = rng.random(3000) >= rate
    labels = np.where(clean, truth, (truth + rng.integers(1, 3, 3000)) % 3)
    features = CENTRES[truth] + rng.normal(size=(3000, 2))
    evidence = label_evidence(
        rows(features, np.full(3000, 1 / 3)), labels, TARGETS, np.full(3000, 1 / 3)
    )
    kept = np.zeros(3000, dtype=bool)
    kept[trusted(evidence)] = True
    assert kept[clean].mean() > 0.95
    assert not rate or kept[~clean].mean() < 0.1


def test_inputs_are_not_changed() -> None:
    arrays = [np.full((2, 3), 0.5), np.ones((2, 3)), np.array([True, False, False])]
    for array in arrays:
        array.flags.writeable = False
    first = remembered(None, arrays[1], arrays[2])
    first[0, 0] = 7.0
    assert arrays[1][0, 0] == 1.0
    remembered(*arrays)


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match=r"rivals: expected 2, one per row, got shape \(1,\)"):
        label_evidence(np.ones((2, 3)), [0, 1], TARGETS, [0.5])
    with pytest.raises(ValueError, match="labels: expected 0 to 2, got 3"):
        label_evidence(np.ones((1, 3)), [3], TARGETS, [0.5])
    with pytest.raises(ValueError, match="memory: expected a share from 0 to below 1, got 1"):
        remembered(None, np.ones((2, 1)), [False], memory=1)
    with pytest.raises(ValueError, match=r"trust: expected shape \(2, 1\) as evidence has"):
        remembered(np.ones((2, 2)), np.ones((2, 1)), [False])


def test_samples_of_many_clients_are_judged_as_those_of_each() -> None:
    rng = np.random.default_rng(7)
    sizes = rng.integers(1, 20, 30)
    ends = np.cumsum(sizes)
    lacking, features = rng.random(ends[-1]), rng.normal(size=(ends[-1], 6))
    gradients = -lacking[:, None] * np.column_stack([np.ones(ends[-1]), features])
    gradients[5] = np.nan
    labels, rivals = rng.integers(0, 4, ends[-1]), rng.random(ends[-1]) * (1 - lacking)
    targets = -0.5 * np.column_stack([np.ones(4), rng.normal(size=(4, 6))])
    targets[2] = np.nan
    together = label_evidence(gradients, labels, targets, rivals)
    before = np.where(np.arange(ends[-1]) < ends[9], 0.5, np.nan) * np.ones((2, 1))  # 10 were seen
    trained = rng.random(ends[-1]) < 0.5
    trust = remembered(before, together, trained)
    for client, (start, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        own = slice(start, end)
        alone = label_evidence(gradients[own], labels[own], targets, rivals[own])
        np.testing.assert_allclose(together[:, own], alone, atol=1e-12)
        past = before[:, own] if client < 10 else None
        np.testing.assert_allclose(trust[:, own], remembered(past, alone, trained[own]), atol=1e-12)
