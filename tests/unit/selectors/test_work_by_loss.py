"""Shares of the usual steps by loss: bounds, order, and what one claim can do."""

import numpy as np
import pytest
from forager.selectors.work_by_loss import work_by_loss


@pytest.mark.parametrize("clients", [1, 2, 7, 300])
def test_shares_stay_within_their_bounds_and_grow_with_the_loss(clients: int) -> None:
    losses = np.random.default_rng(clients).lognormal(0.0, 1.5, clients)
    shares = work_by_loss(losses)
    assert (shares > 0.2 - 1e-9).all()
    assert (shares <= 1).all()
    assert shares[losses.argmax()] == 1
    assert (np.diff(shares[losses.argsort()]) >= 0).all()
    assert clients == 1 or shares[losses.argmin()] == pytest.approx(0.2)


def test_epochs_are_those_of_flad_where_the_usual_ones_are_five() -> None:
    """Linear from 1 epoch for the best score to 5 for the worst; losses stand for 1 - score."""
    scores = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(5 * work_by_loss(1 - scores), [1, 2, 3, 4, 5])


def test_those_whose_loss_is_not_known_or_is_like_all_others_take_all_steps() -> None:
    np.testing.assert_allclose(work_by_loss([np.nan, 0.5, np.inf, 0.7]), [1.0, 0.2, 1.0, 1.0])
    assert work_by_loss([0.0, 0.0]).tolist() == [1.0, 1.0]
    assert work_by_loss([]).tolist() == []
    assert work_by_loss([np.nan]).tolist() == [1.0]


@pytest.mark.parametrize("claim", [10.0, 1e9])
def test_a_wild_claim_does_not_leave_all_others_the_least(claim: float) -> None:
    honest = np.linspace(0.5, 1.5, 9)
    assert work_by_loss([*honest, claim])[:9].mean() > 0.7 * work_by_loss(honest).mean()
