"""Cohorts by a split test: who is asked again, and when."""

from collections.abc import Sequence

import numpy as np
from forager.selectors.cohorts.split import SplitRule
from forager.selectors.cohorts.split_testing import NOWHERE, SplitTest

KEYS = [str(number) for number in range(24)]


def split(cohorts: SplitTest, leaf: str, keys: Sequence[str], ways: Sequence[int]) -> list[str]:
    """Show rounds in which clients pull in these ways until the leaf is split."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        updates = np.eye(6)[list(ways)] + 0.1 * rng.normal(size=(len(keys), 6))
        seen = cohorts.observe(leaf, keys, updates, population=len(KEYS))
        if seen.children:
            return seen.children
    raise AssertionError(seen.reason)


def test_who_could_not_be_placed_is_asked_about_new_cohorts_at_once() -> None:
    cohorts = SplitTest(rule=SplitRule(first_round=0, rounds=1, participants=1))
    even, _ = split(cohorts, "0", KEYS, [int(key) % 2 for key in KEYS])
    for round_ in (5, 7):
        assert cohorts.to_ask(["newcomer"], round_, 1) == ["newcomer"]
        cohorts.told(["newcomer"], {}, round_)
    assert cohorts.to_ask(["newcomer"], 8, 1) == []  # it was silent twice: not before round 11
    assert cohorts.place(["newcomer"], training=True) != [NOWHERE]  # meanwhile it tries
    split(cohorts, even, KEYS[::2], [2 + int(key) % 4 for key in KEYS[::2]])
    assert cohorts.to_ask(["newcomer"], 8, 1) == ["newcomer"]
    assert cohorts.place(["newcomer"], training=True) == [NOWHERE]  # until it has answered


def test_a_client_leaves_its_cohort_only_for_a_much_lower_loss() -> None:
    cohorts = SplitTest(rule=SplitRule(first_round=0, rounds=1, participants=1))
    _, odd = split(cohorts, "0", KEYS, [int(key) % 2 for key in KEYS])
    for losses in ([0.0, 0.0], [0.95, 1.0]):
        cohorts.told(["1"], {"1": losses}, 9)
        assert cohorts.home("1") == odd
    cohorts.told(["1"], {"1": [0.85, 1.0]}, 9)
    assert cohorts.home("1") != odd


def test_a_newcomer_goes_to_a_clearly_lower_loss_at_once_and_else_when_it_was_asked_often() -> None:
    cohorts = SplitTest(rule=SplitRule(first_round=0, rounds=1, participants=1))
    even, odd = split(cohorts, "0", KEYS, [int(key) % 2 for key in KEYS])
    cohorts.told(["clear"], {"clear": [1.0, 0.9]}, 9)
    assert cohorts.home("clear") == odd
    homes = []
    for number in range(5):
        cohorts.told(["close"], {"close": [0.99, 1.0]}, 9 + number)
        homes.append(cohorts.home("close"))
    assert homes == [None] * 4 + [even]


def test_clients_that_trained_in_the_same_rounds_are_no_group() -> None:
    """What a round makes of all its updates is not what its clients have in common."""
    rule, rng = SplitRule(first_round=0, rounds=1, participants=1), np.random.default_rng(0)
    cohorts, directions = SplitTest(rule=rule), np.eye(6)
    for way, keys in enumerate([KEYS[:6], KEYS[5:11]]):
        updates = directions[way] + 0.05 * rng.normal(size=(6, 6))
        if way:  # the only one that was in both rounds changes otherwise than the others would
            updates[0] += directions[2]
        seen = cohorts.observe("0", keys, updates, population=12)
    assert (seen.children, "different rounds" in seen.reason) == ([], True), seen


def test_groups_are_found_whoever_trains_together() -> None:
    rule, rng = SplitRule(first_round=0, participants=1), np.random.default_rng(0)
    cohorts = SplitTest(rule=rule)
    for number in range(8):
        keys = KEYS[:12:2] if number % 2 else KEYS[1:12:2]
        keys = keys if number < 3 else KEYS[:12]
        updates = np.eye(6)[[int(key) % 2 for key in keys]] + 0.1 * rng.normal(size=(len(keys), 6))
        if cohorts.observe("0", keys, updates, population=12).children:
            return
    raise AssertionError("no split in 8 rounds")
