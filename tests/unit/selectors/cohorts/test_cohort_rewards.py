import numpy as np
import pytest
from forager.selectors.cohorts.exploration import exploration_rate
from forager.selectors.cohorts.heterogeneity import heterogeneity
from forager.selectors.cohorts.rewards import (
    decayed,
    instant_reward,
    known_centre,
    predicted,
)
from forager.selectors.cohorts.split import gain_of


def test_reward_is_one_in_the_centre_and_zero_at_mean_plus_deviation() -> None:
    distances = np.array([0.0, 2.0, 2.0, 4.0])
    limit = distances.mean() + distances.std()
    np.testing.assert_allclose(instant_reward(distances), 1 - distances / limit)
    assert instant_reward(distances)[0] == 1
    assert instant_reward(distances)[3] < 0 < instant_reward(distances)[1]


def test_rewards_do_not_depend_on_the_scale() -> None:
    distances = np.random.default_rng(0).random(20)
    np.testing.assert_allclose(instant_reward(1e6 * distances), instant_reward(distances))


def test_all_at_the_centre_and_nobody_at_all() -> None:
    assert instant_reward([0.0, 0.0, 0.0]).tolist() == [1, 1, 1]
    assert instant_reward([]).tolist() == []
    assert instant_reward([3.0]).tolist() == [0.0]  # alone, as far away as the mean


@pytest.mark.parametrize("bad", [[-1.0], [np.nan], [[1.0]]])
def test_what_is_no_distance_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="distances"):
        instant_reward(bad)


def test_decay() -> None:
    np.testing.assert_allclose(decayed([1.0, 0.0], [0.0, 1.0]), [0.8, 0.2])
    assert decayed(0.3, 0.9, rate=1.0) == 0.9
    with pytest.raises(ValueError, match="rate"):
        decayed(0.0, 0.0, rate=1.5)


def test_the_centre_is_that_of_the_known_unless_there_is_but_one() -> None:
    points = np.array([[0.0], [2.0], [10.0]])
    assert known_centre(points, np.array([True, True, False])) == [1.0]
    assert known_centre(points, np.array([True, False, False])) == [4.0]


def test_exploration_decays_with_the_rounds_of_the_cohort() -> None:
    assert exploration_rate(0) == 0.3
    assert exploration_rate(10, initial=0.5, decay=0.9) == pytest.approx(0.5 * 0.9**10)
    with pytest.raises(ValueError, match="round"):
        exploration_rate(-1)
    with pytest.raises(ValueError, match="initial"):
        exploration_rate(0, initial=2.0)


def test_a_try_says_less_of_cohorts_farther_away() -> None:
    """Figure 7, and that it adds up (line 25)."""
    near, far = predicted(0.0, -3.0, 1), predicted(0.0, -3.0, 2)
    assert (near, far) == (-1.5, -1.0)
    assert predicted(near, -1.0, 1) == -1.5 - 0.5
    assert predicted(near, 1.0, 1) == -1.5 + 0.5  # either sign


def test_heterogeneity_is_equation_1() -> None:
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(12, 3)), rng.integers(0, 3, 12)
    total = 0.0
    for label in range(3):
        group = points[labels == label]
        pairs = sum(np.sum((a - b) ** 2) for a in group for b in group)
        total += pairs / (2 * len(group))
    assert heterogeneity(points, labels) == pytest.approx(total)


def test_a_split_gains_what_the_clusters_explain() -> None:
    points = np.array([[0.0, 1.0], [0.0, -1.0], [6.0, 1.0], [6.0, -1.0], [99.0, 99.0]])
    gain = gain_of(points, np.array([0, 0, 1, 1, -1]), 2)
    assert (gain.before, gain.after, gain.smallest_share) == (10.0, 1.0, 0.5)
    nobody = gain_of(points, np.full(5, -1), 2)
    assert (nobody.before, nobody.after, nobody.smallest_share) == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="labels"):
        heterogeneity(points, [0, 1])
