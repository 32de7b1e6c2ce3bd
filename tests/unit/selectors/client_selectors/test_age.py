import numpy as np
import pytest
from forager.selectors.client_selectors.age import OldestFirst, ShuffledTurns, awake, oldest
from forager.selectors.client_selectors.base import Candidates


def test_the_oldest_first_and_ties_to_the_lower_position() -> None:
    assert oldest([3, 9, 3, 0, 9], 3).tolist() == [1, 4, 0]
    assert oldest([1, 1, 1], 2).tolist() == [0, 1]
    assert oldest([1, 2], 5).tolist() == [1, 0]
    assert oldest([], 2).tolist() == []
    assert oldest([4], 0).tolist() == []


def test_ties_are_broken_by_the_generator() -> None:
    chosen = {tuple(oldest([1] * 6, 2, np.random.default_rng(seed))) for seed in range(40)}
    assert len(chosen) > 10
    again = [oldest([1] * 6, 2, np.random.default_rng(7)).tolist() for _ in range(3)]
    assert again[0] == again[1] == again[2]


def test_oldest_first_is_fair() -> None:
    age = np.zeros(7, dtype=int)
    rng, turns = np.random.default_rng(0), np.zeros(7, dtype=int)
    for _ in range(21):
        keys = [str(i) for i in range(7)]
        chosen = OldestFirst().select(Candidates(keys, {"age": age}), 2, rng)
        turns[chosen] += 1
        age += 1
        age[chosen] = 0
        assert age.max() <= 3
    assert turns.sum() == 42
    assert turns.min() >= 5
    assert turns.max() <= 7


def test_shuffled_turns_are_fair_and_everyone_meets_everyone() -> None:
    age, rng = np.zeros(20, dtype=int), np.random.default_rng(0)
    turns, met = np.zeros(20, dtype=int), np.eye(20, dtype=bool)
    keys = [str(i) for i in range(20)]
    for _ in range(40):
        chosen = ShuffledTurns().select(Candidates(keys, {"age": age}), 10, rng)
        turns[chosen] += 1
        met[np.ix_(chosen, chosen)] = True
        age += 1
        age[chosen] = 0
        assert age.max() <= 4
    assert met.all()
    assert turns.min() >= 17


@pytest.mark.parametrize("age", [[1, -1], [np.nan, 1], [0.5, 1], [np.inf, 0], [[1, 2]]])
def test_ages_that_are_none_are_refused(age: list) -> None:
    for call in (lambda: oldest(age, 1), lambda: awake(age, 1, 0.5)):
        with pytest.raises(ValueError, match="age: expected whole numbers from 0 on"):
            call()


def test_the_youngest_share_is_silent() -> None:
    age = [5, 0, 2, 1, 0, 4, 3]
    assert awake(age, 2, 0.5).tolist() == [True, False, True, False, False, True, True]
    assert awake(age, 2, 0.0).all()
    assert awake(age, 2, 0.14).all()  # floor(0.98) is nobody
    assert np.flatnonzero(awake(age, 2, 1.0)).tolist() == [0, 5]  # but never fewer than count
    assert awake(age, 9, 1.0).all()


def test_who_never_took_part_is_not_silenced() -> None:
    veterans = [False, True, True, False]
    assert awake([0, 0, 1, 0], 1, 0.5, veterans).tolist() == [True, False, False, True]
    assert awake([0, 0, 0, 0], 1, 0.5, [False] * 4).all()


def test_the_unknown_do_not_count_as_left() -> None:
    known = np.array([True, True, False, False])
    left = awake([0, 1, 2, 3], 1, 0.5, known=known)
    assert left.tolist() == [False, True, False, False]
    assert awake([0, 1, 2, 3], 2, 0.5, known=known).tolist() == known.tolist()


def test_equal_ages_are_silenced_by_position_or_by_lot() -> None:
    assert awake([0] * 4, 1, 0.5).tolist() == [False, False, True, True]
    lots = {tuple(awake([0] * 4, 1, 0.5, rng=np.random.default_rng(s))) for s in range(60)}
    assert len(lots) == 6
    assert all(sum(lot) == 2 for lot in lots)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, np.nan])
def test_a_ratio_outside_its_range_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="silent_ratio: expected a share from 0 to 1"):
        awake([1, 2], 1, ratio)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="participated: expected 2 values"):
        awake([1, 2], 1, 0.5, [True])
