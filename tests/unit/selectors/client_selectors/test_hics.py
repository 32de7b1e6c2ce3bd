"""HiCS-FL: entropies from updates, clusters, and a preference that fades."""

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.hics import Hics, clusters, label_entropies


def bias_updates(shares, step=0.05):
    """What one pass over balanced predictions does to the bias: up by shares, down by 1/B."""
    shares = np.asarray(shares, dtype=np.float64)
    return step * (shares - 1 / shares.shape[1])


def crowd(shares):
    names = [str(i) for i in range(len(shares))]
    sizes = np.full(len(shares), 9.0)
    return Candidates(names, {"bias-update": bias_updates(shares), "num-examples": sizes})


def test_the_entropy_of_updates_ranks_clients_like_that_of_their_labels() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([0.3] * 10, 200)
    truth = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1)
    told = label_entropies(bias_updates(shares))
    assert np.corrcoef(told.argsort().argsort(), truth.argsort().argsort())[0, 1] > 0.8


def test_the_learning_rate_makes_no_difference() -> None:
    rows = bias_updates(np.random.default_rng(0).dirichlet([0.3] * 4, 9))
    np.testing.assert_allclose(label_entropies(rows), label_entropies(100 * rows))


def test_clusters_are_of_clients_with_the_same_classes() -> None:
    shares = [[1, 0, 0, 0]] * 3 + [[0, 0, 0, 1]] * 3 + [[0.25] * 4] * 2
    rows = bias_updates(shares) + np.random.default_rng(0).normal(scale=1e-4, size=(8, 4))
    labels = clusters(rows, label_entropies(rows), 3, 10.0)
    assert len({*labels[:3]}) == len({*labels[3:6]}) == len({*labels[6:]}) == 1
    assert len({*labels}) == 3


def test_clients_with_all_classes_are_preferred_at_first_and_not_at_the_end() -> None:
    shares = [[0.3, 0.25, 0.25, 0.2]] * 5 + [[1, 0, 0, 0]] * 5
    rule, rng = Hics(rounds=400), np.random.default_rng(0)
    counts = [np.mean([rule.select(crowd(shares), 2, rng) < 5 for _ in range(200)]) for _ in "ab"]
    assert counts[0] > 0.75
    assert counts[1] < counts[0] - 0.1


def test_who_has_not_trained_comes_first() -> None:
    candidates = crowd([[0.5, 0.5]] * 6)
    candidates.observations["bias-update"][[1, 4]] = np.nan
    assert {1, 4} < set(Hics().select(candidates, 3, np.random.default_rng(0)).tolist())


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="temperature=0"):
        Hics(temperature=0)
