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
