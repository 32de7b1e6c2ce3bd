import numpy as np
import pytest
from forager.selectors.cohorts.affinity import Feedback
from forager.selectors.cohorts.matching import Claims, RequestCache, choose_leaves, equal_shares


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


def claims(*rows: tuple[float, int, bool]) -> Claims:
    made = Claims.blank(len(rows), 1)
    for i, (reward, index, known) in enumerate(rows):
        made.rewards[i, 0], made.indices[i, 0], made.known[i, 0] = reward, index, known
    return made


def test_a_split_is_followed_for_everyone_at_once() -> None:
    cache = RequestCache()
    cache.tell(["a", "b", "c"], claims((0.5, 4, True), (0.25, 5, True), (0.0, -1, True)))
    cache.split(0, [4, 5])
    cache.split(1, [0, 1])
    found = cache.of(["c", "b", "a", "stranger"])
    np.testing.assert_allclose(
        found.rewards, [[0, 0, 0], [0.25, 0.35, 0.35], [0.6, 0.5, 0.5], [0, 0, 0]]
    )
    assert found.known.tolist() == [[False] * 3, [False] * 3, [True, False, False], [False] * 3]
    assert np.all(found.indices == -1)
    np.testing.assert_array_equal(cache.rewards_of(["c", "b", "a", "stranger"]), found.rewards)


def test_who_was_not_heard_of_for_longest_is_forgotten_first() -> None:
    cache = RequestCache(capacity=3)
    cache.tell(["a", "b", "c"], claims((1, 0, True), (2, 0, True), (3, 0, True)))
    cache.post(["b"], [Feedback("0", 1.0, 0, serial=5)])
    cache.tell(["a"], claims((4, 0, True)))
    cache.tell(["d"], claims((5, 0, True)))
    assert len(cache) == 3
    assert cache.of(list("abcd")).rewards[:, 0].tolist() == [4, 0, 3, 5]
    assert [cache.feedback(key) for key in "bd"] == [None, None]  # d got the row of b
    cache.tell([str(i) for i in range(9)], claims(*[(i, 0, True) for i in range(9)]))
    assert cache.of(["5", "6", "7", "8"]).rewards[:, 0].tolist() == [0, 6, 7, 8]


def test_feedback_is_kept_until_there_is_newer() -> None:
    cache = RequestCache()
    assert cache.feedback("a") is None
    cache.tell(["a"], claims((0, 0, True)))
    assert cache.feedback("a") is None
    cache.post(["a"], [Feedback("0", 0.5, 1, serial=1)])
    cache.post(["a"], [Feedback("0.1", 0.25, -1, serial=2)])
    assert cache.feedback("a") == Feedback("0.1", 0.25, -1, 2)


def test_state_survives_with_the_order_of_forgetting() -> None:
    cache, other = RequestCache(capacity=2), RequestCache(capacity=2)
    cache.tell(["a", "b"], claims((1, 0, True), (2, 3, False)))
    cache.tell(["a"], claims((1, 0, True)))
    cache.post(["a"], [Feedback("0", 0.5, 1, serial=1)])
    other.load_state_dict(cache.state_dict())
    for each in (cache, other):
        each.tell(["c"], claims((9, 0, True)))
    np.testing.assert_equal(other.state_dict(), cache.state_dict())
    assert other.of(["b"]).rewards.tolist() == [[0]]
    assert other.feedback("a") == Feedback("0", 0.5, 1, 1)
