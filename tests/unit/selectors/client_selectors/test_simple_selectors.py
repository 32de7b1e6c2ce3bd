from collections import Counter

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates, ClientSelector
from forager.selectors.client_selectors.plain import Everyone, RoundRobin, Uniform


def turns(selector: RoundRobin, keys: str, count: int, times: int) -> list[str]:
    """Who was chosen, round by round, as texts such as "ab"."""
    rng = np.random.default_rng(0)
    chosen = []
    for _ in range(times):
        positions = selector.select(Candidates(list(keys)), count, rng)
        chosen.append("".join(keys[i] for i in positions))
    return chosen


def test_the_base_promises_but_does_not_choose() -> None:
    with pytest.raises(NotImplementedError):
        ClientSelector().select(Candidates(["a"]), 1, np.random.default_rng(0))
    assert ClientSelector().state_dict() == {}


def test_uniform_gives_everyone_the_same_chance() -> None:
    rng = np.random.default_rng(2)
    candidates = Candidates(list("abcdefgh"))
    hits = Counter(i for _ in range(4000) for i in Uniform().select(candidates, 2, rng).tolist())
    # 4000 draws of 2 among 8: 1000 expected, standard deviation 27
    assert all(abs(hits[i] - 1000) < 140 for i in range(8))


def test_uniform_pairs_are_equally_likely_too() -> None:
    rng = np.random.default_rng(2)
    pairs = Counter(
        tuple(Uniform().select(Candidates(list("abcd")), 2, rng).tolist()) for _ in range(3000)
    )
    assert len(pairs) == 6
    assert all(abs(hits - 500) < 110 for hits in pairs.values())


def test_everyone_is_everyone_in_order() -> None:
    positions = Everyone().select(Candidates(list("abc")), 3, np.random.default_rng(0))
    assert positions.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("size", "count"), [(7, 1), (7, 3), (7, 7), (10, 4), (5, 2)])
def test_round_robin_gives_all_the_same_number_of_turns(size: int, count: int) -> None:
    keys = "abcdefghij"[:size]
    taken: Counter[str] = Counter()
    for chosen in turns(RoundRobin(), keys, count, 5 * size):
        taken.update(chosen)
        assert max(taken[key] for key in keys) - min(taken[key] for key in keys) <= 1
    assert sum(taken.values()) == 5 * size * count


@pytest.mark.parametrize(("size", "count"), [(7, 1), (7, 3), (10, 4)])
def test_round_robin_lets_nobody_wait_longer_than_a_full_turn(size: int, count: int) -> None:
    keys = "abcdefghij"[:size]
    last = dict.fromkeys(keys, -1)
    for number, chosen in enumerate(turns(RoundRobin(), keys, count, 60)):
        for key in chosen:
            last[key] = number
        assert number - min(last.values()) <= 2 * -(-size // count)


def test_round_robin_newcomers_do_not_block_the_others() -> None:
    selector = RoundRobin()
    turns(selector, "abc", 1, 30)
    assert set(turns(selector, "abcz", 1, 4)) == set("abcz")


def test_round_robin_those_who_come_back_do_not_block_the_others() -> None:
    """A device that was away for a night has no claim to all the rounds of the day."""
    selector = RoundRobin()
    turns(selector, "abcd", 1, 4)
    turns(selector, "abc", 1, 60)
    assert set(turns(selector, "abcd", 1, 5)) == set("abcd")


def test_round_robin_newcomers_after_a_return_do_not_block_the_others() -> None:
    selector = RoundRobin()
    turns(selector, "abcd", 1, 4)
    turns(selector, "abc", 1, 60)
    turns(selector, "abcd", 1, 1)
    assert set(turns(selector, "abcdz", 1, 6)) == set("abcdz")


def test_round_robin_goes_by_key_not_by_position() -> None:
    selector = RoundRobin()
    assert turns(selector, "abcd", 2, 1) == ["ab"]
    assert sorted(turns(selector, "dcba", 2, 1)[0]) == ["c", "d"]
