"""FLAD: only those above the mean loss, and none of them before another."""

import numpy as np
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.by_loss import Flad, LocalLoss


def crowd(losses):
    return Candidates([str(i) for i in range(len(losses))], {"loss": np.array(losses)})


def chosen(losses, count, seed=0):
    return Flad().select(crowd(losses), count, np.random.default_rng(seed)).tolist()


def test_who_is_better_than_average_does_not_train() -> None:
    assert sorted(chosen([0.1, 3.0, 0.2, 0.3, 2.0], 3)) == [1, 4]
    assert set(chosen([0.1, 3.0, 2.9, 2.8, np.nan, np.inf], 9)) == {1, 2, 3}


def test_all_train_if_all_are_alike() -> None:
    assert sorted(chosen([0.3] * 7, 9)) == list(range(7))


def test_lots_decide_among_more_than_may_train_unlike_by_local_loss() -> None:
    losses = [0.1, 0.2, 0.3, 3.0, 2.9, 2.8, 2.7]
    rounds = [chosen(losses, 2, seed) for seed in range(60)]
    assert all(len(round) == 2 for round in rounds)
    assert {i for round in rounds for i in round} == {3, 4, 5, 6}
    for seed in range(60):
        worst = LocalLoss().select(crowd(losses), 2, np.random.default_rng(seed))
        assert worst.tolist() == [3, 4]


def test_those_alone_above_the_mean_leave_places_empty_unlike_by_local_loss() -> None:
    losses = [0.1, 3.0, 0.2, 0.3, 2.0]
    assert len(LocalLoss().select(crowd(losses), 3, np.random.default_rng(0))) == 3
    assert len(chosen(losses, 3)) == 2


def test_a_round_does_not_rest_on_one_client() -> None:
    assert sorted(chosen([0.1, 9.0, 0.2, 0.3], 3)) == [1, 3]
    assert chosen([0.1, 9.0, 0.2, 0.3], 1) in ([1], [3])
    assert chosen([np.nan, 9.0], 3) == [1]
