"""Does the core of Auxo find groups that are there, and none that are not?"""

import numpy as np
import pytest
from forager.benchmarks.explore_reward import blobs
from forager.benchmarks.playground import Lie, Playground
from forager.selectors.cohorts.affinity import Affinity, AffinityRecord
from forager.selectors.cohorts.auxo import Auxo
from numpy.typing import NDArray


@pytest.mark.parametrize("seed", range(3))
def test_four_blobs_are_four_cohorts(seed: int) -> None:
    """200 points, 80 a round."""
    points, truth = blobs(4, seed, points=200)
    ground = Playground(Auxo(seed=seed), points, seed)
    ground.play(rounds=45, participants=80)
    assert len(ground.auxo.leaves()) == 4
    assert ground.score(truth) > 0.9
    assert ground.barred == []


def test_rewards_that_speak_for_other_cohorts_in_every_round_mix_them() -> None:
    """Line 25 of algorithm 1, taken alone."""
    points, truth = blobs(4, seed=0, points=200)
    ground = Playground(Auxo(), points, every_round=True)
    ground.play(rounds=45, participants=80)
    assert ground.score(truth) < 0.1


def test_as_many_cohorts_as_groups_even_if_more_are_allowed() -> None:
    points, truth = blobs(2, seed=1, points=200)
    ground = Playground(Auxo(parts=4), points)
    ground.play(rounds=50, participants=50)
    assert [(leaf, parts) for _, leaf, parts in ground.splits] == [("0", 2)]
    assert ground.score(truth) > 0.95


@pytest.mark.parametrize("spread", [np.ones(32), np.geomspace(1, 4, 32)])
def test_no_groups_are_no_split(spread: NDArray[np.float64]) -> None:
    points = np.random.default_rng(0).normal(size=(500, 32)) * spread + 3.0
    ground = Playground(Auxo(), points)
    ground.play(rounds=45, participants=200)
    assert ground.splits == []


def test_among_very_many_clients_cohorts_are_found_as_soon() -> None:
    """200 of 20,000 hardly ever meet again."""
    points, _ = blobs(4, seed=0, points=20_000)
    ground = Playground(Auxo(), points)
    ground.play(rounds=21, participants=200)
    assert [(leaf, parts) for _, leaf, parts in ground.splits] == [("0", 4)]


def test_without_their_records_clients_find_no_cohort() -> None:
    """Figure 14c to the end: the server has no copy that would decide in their place."""
    points, truth = blobs(4, seed=0, points=200)
    ground = Playground(Auxo(), points)
    ground.play(rounds=45, participants=80)
    assert ground.score(truth) > 0.9
    ground.loss = 1.0
    ground.play(rounds=2, participants=80)
    assert abs(ground.score(truth)) < 0.1


def stubborn(leaf: int) -> Lie:
    """Claim to fit one leaf very well, whatever the server says."""

    def lie(auxo: Auxo) -> Affinity:
        leaves = auxo.leaves()
        return Affinity({leaves[leaf % len(leaves)]: AffinityRecord(reward=1.0, known=True)})

    return lie


def test_stubborn_liars_are_barred_and_the_honest_are_not() -> None:
    points, truth = blobs(4, seed=0, points=200)
    rng = np.random.default_rng(0)
    liars = {str(i): stubborn(int(rng.integers(4))) for i in rng.choice(200, 12, replace=False)}
    ground = Playground(Auxo(), points, liars=liars)
    ground.play(rounds=60, participants=80)
    assert set(ground.barred) <= set(liars)
    assert len(ground.barred) >= 5  # a quarter of them happen to tell the truth
    assert ground.barred == ground.auxo.lies.blacklist
    matched = ground.match()
    assert not set(ground.barred) & {key for keys in matched.values() for key in keys}
    honest = [key for key in ground.keys if key not in liars]
    assert ground.score(truth, among=honest) > 0.8
