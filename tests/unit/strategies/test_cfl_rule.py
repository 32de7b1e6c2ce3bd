"""CFL's rule: both of its thresholds count."""

import numpy as np
import pytest
from forager.core.config import read_config
from forager.core.storage import tree
from forager.strategies.cohort_rules.base import CohortSignals
from forager.strategies.cohort_rules.cfl import CflRule

KEYS = list("abcd")


def rule_of(**more: float) -> CflRule:
    keys = {"cohorts": "cfl", "cohort.first-split": 0}
    return CflRule(
        read_config(keys | {f"cohort.{k.replace('_', '-')}": v for k, v in more.items()})
    )


def torn(length: float) -> dict[str, CohortSignals]:
    """Two pull one way and two the other, so that the mean is short."""
    ways = np.array([[1.0, 0.1], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.1]])
    return {"0": CohortSignals(KEYS, (length * ways).astype(np.float32))}


def together(length: float) -> dict[str, CohortSignals]:
    return {"0": CohortSignals(KEYS, np.full((4, 2), length, dtype=np.float32))}


@pytest.mark.parametrize(("share", "splits"), [(0.5, False), (0.0, True), (0.05, True)])
def test_clients_that_have_converged_are_not_split(share: float, splits: bool) -> None:
    rule = rule_of(longest_norm=share)
    assert rule.learn(1, {"0": 1}, together(10.0)) is None
    assert (rule.learn(2, {"0": 2}, torn(1.0)) is not None) == splits


def test_clients_that_still_move_apart_are_split() -> None:
    rule = rule_of()
    assert rule.learn(1, {"0": 1}, together(1.5)) is None
    assert rule.learn(2, {"0": 2}, torn(1.2)) == {"0.0": {"0": 1.0}, "0.1": {"0": 1.0}}


def test_a_restart_remembers_the_longest_update() -> None:
    rule, fresh = rule_of(), rule_of()
    rule.learn(1, {"0": 1}, together(10.0))
    fresh.load_state_dict(tree.from_bytes(tree.to_bytes(rule.state_dict(), "test"), "test"))
    assert fresh.learn(2, {"0": 2}, torn(1.0)) is None
