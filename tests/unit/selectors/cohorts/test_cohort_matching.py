import numpy as np
import pytest
from forager.selectors.cohorts.affinity import Affinity, AffinityRecord
from forager.selectors.cohorts.matching import Claims, choose_leaves, equal_shares
from forager.selectors.cohorts.tree import CohortTree


def test_the_largest_reward_wins_and_ties_are_drawn() -> None:
    rng = np.random.default_rng(0)
    rewards = np.tile([[0.5, 0.1, 0.5], [-1.0, -0.5, -2.0]], (500, 1))
    chosen = choose_leaves(rewards, [0.0] * 3, rng)
    assert set(chosen[1::2].tolist()) == {1}
    assert set(chosen[::2].tolist()) == {0, 2}
    assert 180 < np.count_nonzero(chosen[::2] == 2) < 320


def test_exploration_is_uniform_at_the_rate_of_the_leaf_that_was_asked_for() -> None:
    rng = np.random.default_rng(0)
    rewards = np.repeat([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]], 20_000, axis=0)
    chosen = choose_leaves(rewards, [0.4, 0.0, 0.9, 0.9], rng)
    assert np.count_nonzero(chosen[20_000:] == 1) == 20_000
    counts = np.bincount(chosen[:20_000], minlength=4) / 20_000
    np.testing.assert_allclose(counts, [0.7, 0.1, 0.1, 0.1], atol=0.01)


def test_nobody_and_one_leaf() -> None:
    rng = np.random.default_rng(0)
    assert choose_leaves(np.zeros((0, 3)), [0.3] * 3, rng).tolist() == []
    assert choose_leaves(np.zeros((4, 1)), [0.3], rng).tolist() == [0] * 4
    with pytest.raises(ValueError, match="rates"):
        choose_leaves(np.zeros((4, 2)), [0.3], rng)


@pytest.mark.parametrize(("count", "leaves"), [(0, 3), (2, 3), (50, 4), (200, 7)])
def test_shares_are_equal_and_the_remainder_takes_turns(count: int, leaves: int) -> None:
    turns = [equal_shares(count, leaves, turn) for turn in range(leaves)]
    assert all(sum(shares) == count and max(shares) - min(shares) <= 1 for shares in turns)
    assert np.sum(turns, axis=0).tolist() == [count] * leaves


def test_requests_become_claims_about_the_leaves_there_are() -> None:
    """Two splits that the clients have not heard of, each along their clusters (line 22)."""
    tree = CohortTree.of_leaves(["0.4", "0.5.0", "0.5.1"])
    said = [(0.5, 4), (0.25, 5), (0.0, -1)]
    requests = [
        Affinity({"0": AffinityRecord(reward, index, known=True)}) for reward, index in said
    ]
    found = Claims.of([*requests, None], tree)
    np.testing.assert_allclose(
        found.rewards, [[0.6, 0.5, 0.5], [0.25, 0.35, 0.35], [0, 0, 0], [0, 0, 0]]
    )
    assert found.known.tolist() == [[True, False, False], *[[False] * 3] * 3]
    assert np.all(found.indices == -1)
