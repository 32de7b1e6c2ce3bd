"""CFL's rule: both of its thresholds count."""

import numpy as np
import pytest
from forager.core.config import read_config
from forager.core.storage import tree
from forager.strategies.cohorts.base import CohortSignals
from forager.strategies.cohorts.cfl import CflRule

KEYS = list("abcd")


def rule_of() -> CflRule:
    return CflRule(read_config({"cohorts": "cfl", "num-server-rounds": 3}))


def torn(length: float) -> dict[str, CohortSignals]:
    """Two pull one way and two the other, so that the mean is short."""
    ways = np.array([[1.0, 0.1], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.1]])
    return {"0": CohortSignals(KEYS, (length * ways).astype(np.float32))}


def together(length: float) -> dict[str, CohortSignals]:
    return {"0": CohortSignals(KEYS, np.full((4, 2), length, dtype=np.float32))}


@pytest.mark.parametrize(("share", "splits"), [(0.5, False), (0.0, True), (0.05, True)])
def test_clients_that_have_converged_are_not_split(
    share: float, splits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forager.strategies.cohorts.cfl._LONGEST", share)
    rule = rule_of()
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


def clients(updates: np.ndarray) -> dict[str, CohortSignals]:
    keys = [str(number) for number in range(len(updates))]
    return {"0": CohortSignals(keys, updates.astype(np.float32))}


def test_planted_groups_are_split_as_they_are() -> None:
    rng = np.random.default_rng(0)
    group = np.arange(20) % 2
    updates = np.outer(1 - 2 * group, np.eye(16)[0]) + rng.normal(0, 0.1, (20, 16))
    rule = rule_of()
    assert rule.learn(1, {"0": 1}, clients(updates)) is not None
    found = rule.core.members.of([str(number) for number in range(20)])
    assert sorted(sorted(int(key) % 2 for key in keys) for keys in found.values()) == [
        [0] * 10,
        [1] * 10,
    ]


def test_clients_with_a_common_direction_are_not_split() -> None:
    rng = np.random.default_rng(0)
    assert rule_of().learn(1, {"0": 1}, clients(1 + rng.normal(0, 1, (20, 16)))) is None


@pytest.mark.parametrize(("highest", "splits"), [(0.35, False), (1.0, True)])
def test_clients_that_differ_without_groups_are_not_split(
    highest: float, splits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All around a circle: the mean is 0 and updates are long, but neighbours are alike."""
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    updates = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    monkeypatch.setattr("forager.strategies.cohorts.cfl._ALIKE", highest)
    rule = rule_of()
    assert (rule.learn(1, {"0": 1}, clients(updates)) is not None) == splits
