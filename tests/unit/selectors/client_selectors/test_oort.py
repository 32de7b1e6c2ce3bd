from collections import Counter
from typing import Any

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.oort import Oort

NAN = float("nan")


def crowd(utility: list[float], **more: list[Any]) -> Candidates:
    size = len(utility)
    seen = {
        "age": [0] * size,
        "participated": np.isfinite(utility),
        "utility": utility,
        "seconds": np.where(np.isfinite(utility), 1.0, NAN),
    }
    observations = {name: np.array(v) for name, v in (seen | more).items()}
    return Candidates([str(i) for i in range(size)], observations)


def hits(candidates: Candidates, count: int, times: int = 300, **options: Any) -> Counter[int]:
    """How often each is chosen by fresh selectors."""
    rng, counter = np.random.default_rng(0), Counter[int]()
    for _ in range(times):
        counter.update(Oort(**options).select(candidates, count, rng).tolist())
    return counter


def test_exploration_takes_its_share_of_the_new() -> None:
    candidates = crowd([1.0] * 20 + [NAN] * 20)
    chosen = Oort(exploration=0.3).select(candidates, 10, np.random.default_rng(0))
    assert sum(chosen >= 20) == 3
    assert len(chosen) == 10


def test_exploration_decays_to_its_floor() -> None:
    candidates, rng = crowd([1.0] * 50 + [NAN] * 50), np.random.default_rng(0)
    selector = Oort(exploration=0.9, decay=0.5, floor=0.2, blacklist_after=0)
    new = [int(sum(selector.select(candidates, 20, rng) >= 50)) for _ in range(5)]
    assert new[0] == 18
    assert new[1:] == [9, 5, 4, 4]  # 0.45, 0.225, then the floor


def test_everyone_explored_means_all_are_exploited() -> None:
    for count in (1, 5, 6):
        chosen = Oort().select(crowd([1.0, 2, 3, 4, 5]), count, np.random.default_rng(0))
        assert len(set(chosen.tolist())) == min(count, 5)


def test_nobody_explored_means_a_uniform_draw() -> None:
    counted = hits(crowd([NAN] * 4), 1, times=2000)
    assert all(abs(counted[i] - 500) < 90 for i in range(4))


def test_high_utility_wins() -> None:
    counted = hits(crowd([1.0, 9.0, 2.0, 10.0, 1.5]), 2, exploration=0.0)
    assert set(counted) == {1, 3}


def test_close_to_the_cut_off_is_good_enough() -> None:
    candidates = crowd([0.0, 10.0, 9.9, 9.8, 1.0])
    assert set(hits(candidates, 1, exploration=0.0, clip=1.0)) == {1, 2, 3}
    assert set(hits(candidates, 1, exploration=0.0, clip=1.0, cut_off=1.0)) == {1}


def test_absurd_utilities_are_clipped() -> None:
    utility = [*np.linspace(1, 2, 40), 1e12]
    counted = hits(crowd(utility), 1, times=200, exploration=0.0)
    assert counted[40] < 150
    assert set(hits(crowd(utility), 1, times=50, exploration=0.0, clip=1.0)) == {40}


def test_what_is_no_utility_counts_as_unexplored() -> None:
    counted = hits(crowd([1.0, np.inf, -3.0]), 1, exploration=0.0)
    assert set(counted) == {0}
    assert set(hits(crowd([1.0, np.inf, -3.0]), 1, exploration=1.0)) == {1, 2}


def test_slow_clients_pay_and_alpha_says_how_much() -> None:
    candidates = crowd([0.0, 10.0, 6.0, 0.0], seconds=[1.0, 10.0, 1.0, 1.0])
    assert set(hits(candidates, 1, exploration=0.0, clip=1.0)) == {2}
    assert set(hits(candidates, 1, exploration=0.0, clip=1.0, alpha=0.0)) == {1}
    assert set(hits(candidates, 1, exploration=0.0, clip=1.0, pace=1.0)) == {1}


def test_unknown_seconds_are_no_fault() -> None:
    candidates = crowd([0.0, 10.0, 6.0], seconds=[1.0, NAN, 1.0])
    assert set(hits(candidates, 1, exploration=0.0)) == {1}
    nothing_known = crowd([0.0, 10.0, 6.0], seconds=[NAN] * 3)
    assert set(hits(nothing_known, 1, exploration=0.0)) == {1}


def test_those_long_not_seen_get_a_bonus() -> None:
    selector, rng = Oort(exploration=0.0, floor=0.0, blacklist_after=0), np.random.default_rng(0)
    even = crowd([5.0] * 4)
    for _ in range(49):
        selector.select(even, 1, rng)
    # equal utilities in round 50: sqrt(0.1 ln(50) / last) decides, last = 49 or 1
    stale = crowd([5.0] * 4, age=[0, 0, 48, 0])
    assert selector.select(stale, 1, rng).tolist() == [2]


def test_who_was_chosen_too_often_is_barred_while_there_are_others() -> None:
    selector, rng = Oort(exploration=0.0, blacklist_after=3), np.random.default_rng(0)
    candidates = crowd([10.0, 1.0, 2.0, 3.0])
    chosen = [int(selector.select(candidates, 1, rng)[0]) for _ in range(5)]
    assert chosen == [0, 0, 0, 3, 3]
    assert sorted(selector.select(candidates, 4, rng).tolist()) == [0, 1, 2, 3]


def test_at_most_a_share_is_barred() -> None:
    selector, rng = Oort(exploration=0.0, blacklist_after=1), np.random.default_rng(0)
    candidates = crowd([1.0] * 10)
    for _ in range(30):
        assert len(selector.select(candidates, 8, rng)) == 8


def test_the_pacer_accepts_slower_clients_when_utility_falls() -> None:
    selector, rng = Oort(pacer_rounds=2, pacer_step=0.1, pace=0.3), np.random.default_rng(0)
    paces = []
    for utility in (4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 9.0, 9.0, 1.0, 1.0):
        selector.select(crowd([utility] * 3), 1, rng)
        paces.append(round(selector.state_dict()["pace"], 3))
    assert paces == [0.3, 0.3, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.5]


def test_the_pacer_looks_at_the_last_participants_only() -> None:
    selector, rng = Oort(), np.random.default_rng(0)
    selector.select(crowd([2.0, 3.0, 4.0], age=[0, 1, 0]), 1, rng)
    assert selector.state_dict()["gains"] == [6.0]


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("exploration", 1.5, "a share from 0 to 1"),
        ("decay", -0.1, "a share from 0 to 1"),
        ("cut_off", NAN, "a share from 0 to 1"),
        ("pace", 2, "a share from 0 to 1"),
        ("alpha", -1, "0 or more"),
        ("pacer_rounds", 0, "1 or more"),
        ("blacklist_after", -1, "0 or more"),
    ],
)
def test_options_outside_their_range_are_refused(name: str, value: float, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: expected {allowed}, got"):
        Oort(**{name: value})
