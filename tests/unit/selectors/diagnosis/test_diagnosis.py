"""The statistics of a diagnosis: they find what is there, and nothing by chance."""

import numpy as np
import pytest
from forager.selectors.diagnosis.doubtful_labels import doubts
from forager.selectors.diagnosis.drift import turned
from forager.selectors.diagnosis.learning_curve import rounds_to
from forager.selectors.diagnosis.skew import SKEWED, dispersion, label_skew, quantity_skew

KEYS = [f"c{number}" for number in range(12)]


@pytest.mark.parametrize("samples", [8, 50, 256])
def test_shares_of_samples_drawn_alike_are_not_skewed_and_those_of_a_dirichlet_are(
    samples: int,
) -> None:
    rng = np.random.default_rng(samples)
    for _ in range(50):
        alike = rng.multinomial(samples, np.full(10, 0.1), size=12) / samples
        assert dispersion(alike, np.full(12, samples), 0.9) < SKEWED
    skewed = rng.dirichlet(np.full(10, 0.1), size=12)
    shares = np.array([rng.multinomial(samples, own) for own in skewed]) / samples
    assert dispersion(shares, np.full(12, samples), 0.9) > SKEWED


def test_a_constant_common_to_all_clients_does_not_count_as_skew() -> None:
    shares = np.random.default_rng(0).random((12, 4))
    assert dispersion(shares + 5, [9] * 12, 1) == pytest.approx(dispersion(shares, [9] * 12, 1))


def test_clients_without_samples_have_no_skew_of_labels() -> None:
    assert label_skew([]) == label_skew([[0, 0], [0, 0]]) == 0.0
    assert label_skew([[0, 0], [6, 0], [0, 6]]) == 0.5


def test_the_skew_of_quantity_of_one_client_and_of_no_samples() -> None:
    assert quantity_skew([7]) == 0.0
    assert quantity_skew([0, 0]) == 0.0


def test_clients_that_stay_as_they_are_do_not_turn_however_noisy() -> None:
    rng = np.random.default_rng(1)
    own = rng.normal(size=(12, 30))
    for noise in (0.0, 1.0, 30.0):
        seen = {t: (KEYS, own + noise * rng.normal(size=own.shape)) for t in range(1, 13)}
        assert turned(seen) == {}


def test_a_client_that_changes_is_found_with_its_round_though_it_missed_some() -> None:
    rng = np.random.default_rng(2)
    before, after = rng.normal(size=(2, 12, 30))
    seen = {}
    for t in range(1, 13):
        rows = before.copy()
        rows[3] = before[3] if t < 6 else after[3]
        there = [n for n in range(12) if n != 3 or t % 4]
        noise = 0.3 * rng.normal(size=rows.shape)
        seen[t] = ([KEYS[n] for n in there], (rows + noise)[there])
    assert turned(seen) == {"c3": 6}


def test_clients_seen_in_three_rounds_say_nothing_of_drift() -> None:
    rows = np.random.default_rng(3).normal(size=(3, 12, 5))
    assert turned({t: (KEYS, rows[t]) for t in range(3)}) == {}


def test_wrong_labels_of_all_and_of_some_are_told_apart() -> None:
    sizes, clean = np.full(12, 60.0), [0.2, 0.4, 0.85, 0.9, 0.9]
    some = np.full((5, 12), 0.9)
    some[:, :2] = 0.1
    found = doubts(KEYS, some, sizes, clean, 200)
    assert found is not None
    assert (found.clients, found.everywhere) == (["c0", "c1"], False)
    everywhere = doubts(KEYS, np.full((5, 12), 0.55), sizes, clean, 200)
    assert everywhere is not None
    assert everywhere.everywhere
    assert everywhere.clients == []
    assert everywhere.wrong == pytest.approx(0.39, abs=0.01)


def test_a_client_that_the_model_understands_in_some_round_has_right_labels() -> None:
    agreement = np.full((5, 12), 0.9)
    agreement[:3, 0] = 0.1
    found = doubts(KEYS, agreement, np.full(12, 60.0), [0.9] * 5, 200)
    assert found is not None
    assert found.clients == []


def test_a_model_that_has_not_learned_has_no_opinion() -> None:
    agreement = np.full((5, 12), 0.1)
    assert doubts(KEYS, agreement, np.full(12, 60.0), [0.3] * 4 + [0.6], 200) is None


def test_few_clean_samples_make_no_sure_verdict() -> None:
    agreement = np.full((5, 12), 0.4)
    few = doubts(KEYS, agreement, np.full(12, 60.0), [0.5] * 5, 20)
    many = doubts(KEYS, agreement, np.full(12, 60.0), [0.5] * 5, 2000)
    assert few is not None
    assert many is not None
    assert (few.everywhere, many.everywhere) == (False, True)


def test_a_forecast_holds_the_truth_about_as_often_as_it_says() -> None:
    rng, held, told = np.random.default_rng(4), 0, 0
    for _ in range(100):
        curve = [0.7 * t**-0.6 * np.exp(0.05 * rng.normal()) for t in range(1, 13)]
        forecast = rounds_to(curve, 0.7 * 40**-0.6)
        if forecast is not None:
            told += 1
            held += forecast[1] <= 40 <= forecast[2]
    assert told > 90
    assert held / told > 0.9


def test_no_forecast_of_a_flat_curve_and_none_far_ahead() -> None:
    flat = [0.5 + 0.01 * (-1) ** t for t in range(12)]
    assert rounds_to(flat, 0.2) is None
    assert rounds_to([0.8 * t**-0.1 for t in range(1, 13)], 0.1) is None
    assert rounds_to([0.9, 0.4, 0.3, 0.2], 0.3) == (3, 3, 3)
