"""Auxo's cohorts: who is asked again, and when."""

from collections.abc import Sequence

import numpy as np
from forager.selectors.cohorts.auxo import NOWHERE, Auxo
from forager.selectors.cohorts.split import SplitRule

KEYS = [str(number) for number in range(24)]


def split(auxo: Auxo, leaf: str, keys: Sequence[str], ways: Sequence[int]) -> list[str]:
    """Show rounds in which clients pull in these ways until the leaf is split."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        updates = np.eye(6)[list(ways)] + 0.1 * rng.normal(size=(len(keys), 6))
        seen = auxo.observe(leaf, keys, updates, population=len(KEYS))
        if seen.children:
            return seen.children
    raise AssertionError(seen.reason)


def test_who_could_not_be_placed_is_asked_about_new_cohorts_at_once() -> None:
    auxo = Auxo(rule=SplitRule(first_round=0, rounds=1, participants=1))
    even, _ = split(auxo, "0", KEYS, [int(key) % 2 for key in KEYS])
    for round_ in (5, 7):
        assert auxo.to_ask(["newcomer"], round_, 1) == ["newcomer"]
        auxo.told(["newcomer"], {}, round_)
    assert auxo.to_ask(["newcomer"], 8, 1) == []  # it was silent twice: not before round 11
    assert auxo.place(["newcomer"], training=True) != [NOWHERE]  # meanwhile it tries
    split(auxo, even, KEYS[::2], [2 + int(key) % 4 for key in KEYS[::2]])
    assert auxo.to_ask(["newcomer"], 8, 1) == ["newcomer"]
    assert auxo.place(["newcomer"], training=True) == [NOWHERE]  # until it has answered
