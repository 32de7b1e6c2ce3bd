import numpy as np
import pytest
from forager.selectors.cohorts.lies import LieCounter, wrong_cluster, wrong_cohort


def test_a_cluster_much_farther_than_the_nearest_is_a_lie() -> None:
    distances = [[0.4, 1.4], [0.4, 0.45], [0.4, 1.4], [0.0, 0.1]]
    assert wrong_cluster(distances, [1, 1, -1, 1]).tolist() == [True, False, False, True]
    assert wrong_cluster(distances, [0, 0, 0, 0]).tolist() == [False] * 4
    with pytest.raises(ValueError, match="claimed"):
        wrong_cluster(distances, [2, 0, 0, 0])


def test_only_who_claims_to_fit_can_lie_about_it() -> None:
    instant = [-1.0, -1.0, -1.0, 0.2, np.nan]
    rewards, known = [0.5, -0.5, 0.5, 0.5, 0.5], [True, True, False, True, True]
    assert wrong_cohort(instant, rewards, known).tolist() == [True, False, False, False, False]


def test_repeated_lies_lead_to_the_blacklist_and_honesty_leads_away_from_it() -> None:
    lies = LieCounter(strikes=2)
    story = [True, False, True, False, False, True, True, True]
    barred = [lies.count(["liar"], [lied]) for lied in story]
    assert barred == [[], [], [], [], [], [], ["liar"], []]
    assert lies.total == 4  # nobody counts who is barred
    assert list(lies.allowed(["honest", "liar"])) == ["honest"]


def test_strikes_may_be_without_consequence() -> None:
    lies = LieCounter(strikes=0)
    for _ in range(50):
        assert lies.count(["liar"], [True]) == []
    assert lies.total == 50
    with pytest.raises(ValueError, match="lied"):
        lies.count(["a", "b"], [True])


def test_state_survives() -> None:
    lies, other = LieCounter(strikes=2), LieCounter(strikes=2)
    lies.count(["a", "b"], [True, True])
    lies.count(["a"], [True])
    other.load_state_dict(lies.state_dict())
    assert other.blacklist == ["a"]
    assert other.count(["b"], [True]) == ["b"]
    assert other.total == lies.total + 1


def rounds_without(lies: LieCounter, liar: str) -> int:
    """Let rounds pass until a client is allowed again; return how many."""
    passed = 0
    while not lies.allowed([liar]):
        assert lies.count(["honest"], [False]) == []
        passed += 1
    return passed


def test_a_bar_ends_and_the_next_is_twice_as_long() -> None:
    lies, rounds = LieCounter(strikes=1), []
    for _ in range(3):
        assert lies.count(["liar"], [True]) == ["liar"]
        assert lies.blacklist == ["liar"]
        rounds.append(rounds_without(lies, "liar"))
        assert lies.blacklist == []
    assert rounds[0] > 10
    assert rounds == [rounds[0], 2 * rounds[0], 4 * rounds[0]]


def test_how_long_a_bar_still_lasts_survives() -> None:
    lies, other = LieCounter(strikes=1), LieCounter(strikes=1)
    lies.count(["liar"], [True])
    first = rounds_without(lies, "liar")
    lies.count(["liar"], [True])
    for _ in range(5):
        lies.count(["honest"], [False])
    other.load_state_dict(lies.state_dict())
    assert rounds_without(other, "liar") == rounds_without(lies, "liar") == 2 * first - 5
