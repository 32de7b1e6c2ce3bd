from collections import Counter

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates, ClientSelector
from forager.selectors.client_selectors.cosage import CosAge, cosage, most_dissimilar_first
from forager.selectors.client_selectors.dissimilarity import MostDissimilar
from hypothesis import given
from hypothesis import strategies as st


def by_the_book(
    similarity: list[float], age: list[int], count: int, ratio: float, participated: list[bool]
) -> list[int]:
    """Section III in plain Python, for values that are all known."""
    everyone = range(len(age))
    veterans = sorted((i for i in everyone if participated[i]), key=lambda i: (age[i], i))
    silent = veterans[: min(int(ratio * len(age)), max(0, len(age) - count))]
    eligible = [i for i in everyone if i not in silent]
    ranking = sorted(eligible, key=lambda i: (similarity[i], i))
    if not count or not ranking:
        return []
    bins = np.array_split(ranking, min(count, len(ranking)))
    return [int(max(part, key=lambda i: (age[i], -similarity[i], -i))) for part in bins]


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[float], list[int], int, float, list[bool]]:
    size = draw(st.integers(0, 14))
    few = st.sampled_from([-0.5, -0.0, 0.0, 0.25, 1.0])
    similarity = draw(st.lists(few, min_size=size, max_size=size))
    age = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    participated = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    ratio = draw(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]))
    return similarity, age, draw(st.integers(0, 16)), ratio, participated


@given(case=rounds())
def test_agrees_with_the_paper_step_by_step(case: tuple) -> None:
    similarity, age, count, ratio, participated = case
    chosen = cosage(similarity, age, count, ratio, participated)
    assert chosen.tolist() == by_the_book(similarity, age, count, ratio, participated)


@given(case=rounds(), seed=st.integers(0, 5))
def test_with_a_generator_one_of_the_oldest_of_as_many_bins(case: tuple, seed: int) -> None:
    similarity, age, count, _, _ = case
    chosen = cosage(similarity, age, count, rng=np.random.default_rng(seed)).tolist()
    assert len(set(chosen)) == len(chosen) == min(count, len(age))
    assert [similarity[i] for i in chosen] == sorted(similarity[i] for i in chosen)
    again = cosage(similarity, age, count, rng=np.random.default_rng(seed)).tolist()
    assert again == chosen


def test_agrees_on_many_clients_with_and_without_ties() -> None:
    rng = np.random.default_rng(0)
    for digits in (1, 2, 16):
        similarity = rng.uniform(-1, 1, 3001).round(digits)
        age = rng.integers(0, 20, 3001)
        expected = by_the_book(similarity.tolist(), age.tolist(), 37, 0.4, [True] * 3001)
        assert cosage(similarity, age, 37, 0.4).tolist() == expected


def test_larger_bins_come_first() -> None:
    # 7 clients in 3 bins: 3, 2, 2; the last of each bin is the oldest
    assert cosage(np.arange(7) / 7, [0, 1, 2, 0, 1, 0, 1], 3).tolist() == [2, 4, 6]


def test_in_a_bin_age_wins_then_dissimilarity_then_position() -> None:
    assert cosage([0.1, 0.2], [1, 2], 1).tolist() == [1]
    assert cosage([0.2, 0.1], [2, 2], 1).tolist() == [1]
    assert cosage([0.1, 0.1], [2, 2], 1).tolist() == [0]


def test_first_round_is_a_fair_draw() -> None:
    """No previous update: all similarities are 0, all ages too."""
    rng = np.random.default_rng(4)
    zeros = np.zeros(6)
    pairs = Counter(tuple(sorted(cosage(zeros, zeros, 2, rng=rng).tolist())) for _ in range(3000))
    assert len(pairs) == 15
    assert all(abs(hits - 200) < 65 for hits in pairs.values())
    assert cosage(zeros, zeros, 2).tolist() == [0, 3]


def test_equal_scores_are_shuffled_only_among_themselves() -> None:
    scores = np.array([0.5, 0.1, 0.5, 0.1, 0.9])
    orders = {
        tuple(most_dissimilar_first(scores, np.random.default_rng(s)).tolist()) for s in range(40)
    }
    assert orders == {(1, 3, 0, 2, 4), (3, 1, 0, 2, 4), (1, 3, 2, 0, 4), (3, 1, 2, 0, 4)}


def test_the_unknown_are_not_eligible() -> None:
    similarity = [np.nan, 0.3, np.inf, 0.1, np.nan]
    assert cosage(similarity, [9, 1, 9, 1, 9], 2).tolist() == [3, 1]
    assert cosage(similarity, [9, 1, 9, 1, 9], 4).tolist() == [3, 1]
    assert cosage([np.nan] * 3, [1, 2, 3], 2).tolist() == []


def test_the_cooldown_never_leaves_too_few_of_those_known() -> None:
    similarity = [0.1, 0.2, np.nan, np.nan]
    assert sorted(cosage(similarity, [0, 1, 2, 3], 2, silent_ratio=0.5).tolist()) == [0, 1]
    assert cosage(similarity, [0, 1, 2, 3], 1, silent_ratio=0.5).tolist() == [1]


def test_a_newcomer_is_not_silenced() -> None:
    seen = {"age": [4, 3, 0, 0], "participated": [True, True, True, False]}
    crowd = Candidates(list("abcd"), {name: np.array(v) for name, v in seen.items()})
    asked = CosAge(silent_ratio=0.25).shortlist(crowd, 1, np.random.default_rng(0))
    assert asked.tolist() == [0, 1, 3]


def test_the_cooldown_happens_once() -> None:
    """What is selected from has been through the shortlist."""
    seen = {"age": [0, 1, 2, 3], "participated": [True] * 4, "similarity": [0.1, 0.2, 0.3, 0.4]}
    crowd = Candidates(list("abcd"), {name: np.array(v) for name, v in seen.items()})
    selector, rng = CosAge(silent_ratio=0.5), np.random.default_rng(0)
    asked = selector.shortlist(crowd, 2, rng)
    assert asked.tolist() == [2, 3]
    assert selector.select(crowd.take(asked), 2, rng).tolist() == [0, 1]


def test_everybody_gets_a_turn() -> None:
    rng = np.random.default_rng(0)
    age, turns, fixed = np.zeros(20, dtype=int), np.zeros(20, dtype=int), rng.uniform(-1, 1, 20)
    for _ in range(20):
        chosen = cosage(fixed, age, 4, rng=rng)
        turns[chosen] += 1
        age += 1
        age[chosen] = 0
    assert turns.tolist() == [4] * 20


def test_one_client_and_none() -> None:
    assert cosage([0.3], [2], 1).tolist() == [0]
    assert cosage([0.3], [2], 5, silent_ratio=1.0).tolist() == [0]
    assert cosage([0.3], [2], 0).tolist() == []
    assert cosage([], [], 3).tolist() == []
    assert cosage([], [], 3).dtype == np.intp


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1, 0.2], [1, 2, 3], 1), "similarity: expected 3 values as in age"),
        (([0.1, 0.2], [1, -2], 1), "age: expected"),
        (([0.1, 0.2], [1, 2], -1), "count: expected 0 or more, got -1"),
        (([0.1, 0.2], [1, 2], 1, 1.5), "silent_ratio: expected a share from 0 to 1, got 1.5"),
        (([0.1, 0.2], [1, 2], 1, 0.5, [True]), "participated: expected 2 values as in age"),
    ],
)
def test_errors_name_the_argument(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cosage(*arguments)


def test_the_selector_refuses_a_ratio_outside_its_range_at_once() -> None:
    with pytest.raises(ValueError, match="silent_ratio: expected a share from 0 to 1, got -1"):
        CosAge(silent_ratio=-1)


def turns_of_a_liar(selector: ClientSelector, rounds: int = 200) -> float:
    """The share of rounds in which a client of twenty is chosen that always says -1; five train."""
    rng = np.random.default_rng(3)
    ages, participated, turns = np.zeros(20, np.int64), np.zeros(20, bool), 0
    for _ in range(rounds):
        similarity = rng.uniform(-0.2, 0.6, size=20)
        similarity[7] = -1.0
        seen = {"similarity": similarity, "age": ages, "participated": participated}
        candidates = Candidates([str(i) for i in range(20)], seen)
        listed = np.zeros(20, bool)
        listed[selector.shortlist(candidates, 5, rng)] = True
        chosen = selector.select(
            Candidates(
                candidates.keys, {**seen, "similarity": np.where(listed, similarity, np.nan)}
            ),
            5,
            rng,
        )
        ages += 1
        ages[chosen] = 0
        participated[chosen] = True
        turns += int(7 in chosen)
    return turns / rounds


def test_ages_bound_what_a_liar_gains() -> None:
    """Always most dissimilar is always chosen by dissimilarity, about once in four rounds here."""
    assert turns_of_a_liar(MostDissimilar()) == 1.0
    assert turns_of_a_liar(CosAge()) <= 0.35
    assert turns_of_a_liar(CosAge(silent_ratio=0.5)) <= 0.35
