import numpy as np
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.by_loss import LocalLoss


def select(losses: list[float], count: int, seed: int = 0) -> list[int]:
    candidates = Candidates([str(i) for i in range(len(losses))], {"loss": np.array(losses)})
    return LocalLoss().select(candidates, count, np.random.default_rng(seed)).tolist()


def test_the_highest_losses_first() -> None:
    assert select([0.1, 3.0, 0.4, 2.0], 3) == [1, 3, 2]


def test_what_is_not_a_finite_loss_is_not_chosen() -> None:
    assert select([0.1, np.nan, np.inf, 2.0], 4) == [3, 0]


def test_ties_are_broken_at_random() -> None:
    assert {select([1.0, 1.0, 1.0], 1, seed)[0] for seed in range(30)} == {0, 1, 2}
