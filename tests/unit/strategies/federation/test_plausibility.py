"""What is usual, and that no few clients decide it: one attack each, on the one class of limits."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from forager.strategies.federation.plausibility import UsualSize

HONEST = {f"h{i}": 1.0 + 0.1 * i for i in range(7)}
LIARS = ("l0", "l1", "l2")

ATTACKS: dict[str, Callable[[int], float]] = {
    "tiny": lambda number: 1e-12,
    "huge": lambda number: 1e12,
    "zero": lambda number: 0.0,
    "below zero": lambda number: -5.0,
    "not a number": lambda number: math.nan,
    "infinite": lambda number: math.inf,
    "slowly growing": lambda number: 1.5**number,
    "slowly shrinking": lambda number: 0.7**number,
}


def play(usual: UsualSize, number: int, claims: dict[str, float]) -> None:
    usual.settle()
    usual.hear(claims, claims.values())


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_three_of_ten_move_no_limit_out_of_what_the_others_claim(attack: str, first: bool) -> None:
    usual = UsualSize(factor=3.0)
    for number in range(60):
        lies = dict.fromkeys(LIARS, ATTACKS[attack](number))
        play(usual, number, lies | HONEST if first else HONEST | lies)
        assert min(HONEST.values()) <= usual.median <= max(HONEST.values())
        assert usual.most(math.inf) >= max(HONEST.values())


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_client_that_is_heard_in_every_round_has_one_voice(attack: str) -> None:
    usual = UsualSize(factor=3.0)
    for number in range(60):
        key = f"h{number % 7}"
        play(usual, number, {"l0": ATTACKS[attack](number), key: HONEST[key]})
    usual.settle()
    assert min(HONEST.values()) <= usual.median <= max(HONEST.values())


@pytest.mark.parametrize("attack", ATTACKS)
def test_after_an_attack_by_most_the_limit_recovers_also_from_a_save(attack: str) -> None:
    usual = UsualSize(factor=3.0)
    for number in range(5):
        play(usual, number, dict.fromkeys(HONEST, ATTACKS[attack](number)))
    saved = usual.state_dict()
    usual = UsualSize(factor=3.0)
    usual.load_state_dict(saved)
    play(usual, 6, HONEST)
    usual.settle()
    assert usual.median == np.median(list(HONEST.values()))


def test_in_a_round_what_was_usual_before_it_decides() -> None:
    usual = UsualSize(factor=3.0)
    play(usual, 1, HONEST)
    assert usual.median == pytest.approx(1.3)
    play(usual, 2, dict.fromkeys(HONEST, 50.0))
    assert usual.median == pytest.approx(1.3)
    usual.settle()
    assert usual.median == 50.0


def test_one_absurd_size_among_others_is_noticed() -> None:
    usual = UsualSize(factor=3.0)
    play(usual, 1, HONEST)
    usual.settle()
    absurd = [usual.exceeded(sizes) for sizes in ([0.1, 4.0], [0.1, 3.8], [])]
    assert absurd == [True, False, False]


def test_of_two_nobody_can_tell_which_one_lies() -> None:
    usual = UsualSize(factor=3.0)
    play(usual, 1, {"a": 1.0, "b": 1e9})
    assert (usual.median, usual.most(7.0)) == (0.0, 7.0)


def test_a_large_round_is_heard_whole_and_memory_is_bounded() -> None:
    usual = UsualSize(factor=2.0)
    sizes = np.random.default_rng(1).lognormal(size=500)
    usual.hear(map(str, range(500)), sizes.tolist())
    assert usual.median == np.median(sizes)
    for key in range(500, 900):
        usual.hear([str(key)], [1.0])
    assert len(usual.state_dict()) == 100


def test_what_an_older_version_accepted_is_forgotten() -> None:
    usual = UsualSize(factor=2.0)
    usual.load_state_dict([1e-6] * 100)
    assert not usual.state_dict()


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.5, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_honest_sizes_that_shrink_and_differ_by_chance_are_never_absurd(
    spread: float, seed: int
) -> None:
    rng, usual = np.random.default_rng(seed), UsualSize(factor=5.0)
    for number in range(300):
        keys = rng.choice(6, 5, replace=False).astype(str)
        sizes = 0.17 / (1 + number / 10) * rng.lognormal(sigma=spread, size=5)
        play(usual, number, dict(zip(keys, sizes.tolist(), strict=True)))
        assert sizes.max() <= usual.most(math.inf)


@pytest.mark.parametrize(("spread", "most"), [(0.1, 10), (0.3, 30)])
@pytest.mark.parametrize("attack", ATTACKS)
def test_three_of_ten_cannot_make_room_by_a_spread_of_their_own(
    attack: str, spread: float, most: float
) -> None:
    rng, usual = np.random.default_rng(0), UsualSize(factor=5.0)
    for number in range(60):
        sizes = rng.lognormal(sigma=spread, size=7).tolist()
        lies = dict.fromkeys(LIARS, ATTACKS[attack](number))
        play(usual, number, dict(zip(HONEST, sizes, strict=True)) | lies)
        assert usual.most(math.inf) < most


def test_the_spread_raises_a_limit_three_times_at_most() -> None:
    usual = UsualSize(factor=5.0)
    usual.hear("abcdef", [1e-6, 1e-3, 1.0, 1.0, 1e3, 1e6])
    assert usual.most(math.inf) == 15.0


def test_what_is_claimed_in_a_round_makes_no_room_in_it() -> None:
    usual = UsualSize(factor=5.0)
    play(usual, 1, HONEST)
    limit = usual.most(math.inf)
    usual.settle()
    usual.hear(HONEST, [10.0**number for number in range(len(HONEST))])
    assert usual.most(math.inf) == limit


def test_one_claim_of_an_older_version_is_taken_back() -> None:
    usual = UsualSize(factor=2.0)
    usual.load_state_dict({"a": 1.0, "b": 2.0, "c": 3.0})
    assert usual.median == 2.0
