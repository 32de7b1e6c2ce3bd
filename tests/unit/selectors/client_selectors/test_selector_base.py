from collections import Counter

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates, ClientSelector, draw, lowest


def test_an_observation_of_the_wrong_length_is_named() -> None:
    with pytest.raises(ValueError, match=r"'age': 1 values, 2 candidates"):
        Candidates(["a", "b"], {"age": np.array([1])}).observed("age")


def test_a_missing_observation_is_named() -> None:
    with pytest.raises(ValueError, match=r"'loss' is missing; there are: none"):
        Candidates(["a"]).observed("loss")


def test_some_of_the_candidates_keep_their_observations() -> None:
    everyone = Candidates(list("abc"), {"age": np.array([1, 2, 3]), "histogram": np.eye(3)})
    some = everyone.take(np.array([2, 0]))
    assert list(some.keys) == ["c", "a"]
    assert some.observed("age").tolist() == [3, 1]
    assert some.observed("histogram").tolist() == [[0, 0, 1], [1, 0, 0]]


def test_everyone_is_asked_unless_said() -> None:
    rng = np.random.default_rng(0)
    assert ClientSelector().shortlist(Candidates(list("abc")), 1, rng).tolist() == [0, 1, 2]
    assert ClientSelector.needs == frozenset()
    assert not ClientSelector.oracle


def test_lowest_is_a_stable_sort_cut_short() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 40):
        scores = rng.integers(0, 6, size)
        for count in (0, 1, size // 2, size, size + 3):
            expected = np.argsort(scores, kind="stable")[:count]
            assert lowest(scores, count).tolist() == expected.tolist()
            unordered = lowest(scores, count, ordered=False)
            assert sorted(unordered.tolist()) == sorted(expected.tolist())


def test_lowest_never_returns_the_unknown() -> None:
    assert lowest([np.nan, 2.0, np.inf, 1.0, -np.inf], 5).tolist() == [3, 1]
    assert lowest([np.nan, np.nan], 1).tolist() == []
    assert lowest([], 3).tolist() == []


def test_lowest_breaks_ties_evenly_with_a_generator() -> None:
    rng = np.random.default_rng(1)
    pairs = Counter(tuple(lowest([1, 0, 1, 1, 0], 3, rng).tolist()) for _ in range(1200))
    assert {pair[:2] for pair in pairs} == {(1, 4), (4, 1)}
    assert len(pairs) == 6
    assert all(abs(hits - 200) < 65 for hits in pairs.values())


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="count: expected 0 or more, got -1"):
        lowest([1], -1)


def test_draws_follow_the_weights() -> None:
    rng = np.random.default_rng(2)
    first = Counter(int(draw([1.0, 2.0, 0.0, 5.0], 1, rng)[0]) for _ in range(4000))
    assert first[2] == 0
    for position, expected in ((0, 500), (1, 1000), (3, 2500)):
        assert abs(first[position] - expected) < 130


def test_the_second_draw_is_in_proportion_among_the_rest() -> None:
    rng = np.random.default_rng(3)
    orders = Counter(tuple(draw([1.0, 2.0, 5.0], 2, rng).tolist()) for _ in range(8000))
    assert abs(orders[2, 1] - 8000 * 5 / 8 * 2 / 3) < 220
    assert abs(orders[0, 1] - 8000 * 1 / 8 * 2 / 7) < 90


def test_weights_that_vanish_come_last_by_position() -> None:
    rng = np.random.default_rng(0)
    assert draw([0, 0, 1e-320, 0, np.nan], 9, rng).tolist() == [2, 0, 1, 3]
