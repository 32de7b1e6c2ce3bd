"""FLAD: only those above the mean loss."""

import numpy as np
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.by_loss import Flad


def chosen(losses, count):
    crowd = Candidates([str(i) for i in range(len(losses))], {"loss": np.array(losses)})
    return Flad().select(crowd, count, np.random.default_rng(0)).tolist()


def test_who_is_better_than_average_does_not_train() -> None:
    assert chosen([0.1, 3.0, 0.2, 0.3], 3) == [1]
    assert chosen([0.1, 3.0, 2.9, 2.8, np.nan], 2) == [1, 2]


def test_all_train_if_all_are_alike() -> None:
    assert sorted(chosen([0.3] * 7, 9)) == list(range(7))
