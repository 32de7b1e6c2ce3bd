"""DivFL: representatives of all updates."""

import numpy as np
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.divfl import DivFl, representatives


def far_from(rows, chosen):
    return np.linalg.norm(rows[:, None] - rows[chosen], axis=2).min(axis=1).sum()


def test_every_group_of_updates_has_a_representative() -> None:
    rng = np.random.default_rng(0)
    centres = 10 * rng.normal(size=(5, 8))
    rows = centres[np.repeat(np.arange(5), [20, 8, 6, 4, 2])] + rng.normal(scale=0.1, size=(40, 8))
    groups = np.repeat(np.arange(5), [20, 8, 6, 4, 2])
    hits = [len({*groups[representatives(rows, 5, rng)]}) for _ in range(40)]
    assert np.mean(hits) > 4.2
    drawn = [len({*groups[rng.permutation(40)[:5]]}) for _ in range(40)]
    assert np.mean(hits) > np.mean(drawn) + 1


def test_representatives_are_nearer_to_all_than_random_clients() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 4))
    near = np.mean([far_from(rows, representatives(rows, 8, rng)) for _ in range(20)])
    drawn = np.mean([far_from(rows, rng.permutation(60)[:8]) for _ in range(20)])
    assert near < 0.95 * drawn


def test_who_has_not_trained_comes_first() -> None:
    updates = np.random.default_rng(0).normal(size=(6, 3))
    updates[[0, 5]] = np.nan
    crowd = Candidates(list("abcdef"), {"update": updates})
    assert {0, 5} < set(DivFl().select(crowd, 4, np.random.default_rng(0)).tolist())
