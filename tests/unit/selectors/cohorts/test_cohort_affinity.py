import math
from typing import Any

import numpy as np
import pytest
from forager.selectors.cohorts.affinity import Affinity, AffinityRecord, Feedback
from forager.selectors.cohorts.tree import CohortTree

ONE = CohortTree()
TWO = CohortTree.of_leaves(["0.0", "0.1"])
THREE = CohortTree.of_leaves(["0.0", "0.1.0", "0.1.1"])


def rewards(affinity: Affinity, tree: CohortTree) -> list[float]:
    return [affinity.records[leaf].reward for leaf in tree.leaves()]


def test_a_reward_changes_the_cohort_that_was_tried_and_those_never_tried() -> None:
    mine = Affinity()
    mine.learn(None, THREE)
    mine.learn(Feedback("0.1.0", -3.0, -1, serial=1), THREE)
    tried = 0.2 * -3.0  # gamma, from 0
    np.testing.assert_allclose(rewards(mine, THREE), [-1.0, tried, -1.5])  # figure 7
    mine.learn(Feedback("0.0", -1.0, -1, serial=2), THREE)
    first, added = 0.2 * -1.0 + 0.8 * -1.0, -1.5 - 1.0 / (1 + 1)  # the root is above both
    np.testing.assert_allclose(rewards(mine, THREE), [first, tried, added])  # 0.1.0 was tried
    mine.learn(Feedback("0.0", 1.0, -1, serial=3), THREE)  # it does not explore any more
    np.testing.assert_allclose(rewards(mine, THREE), [0.2 + 0.8 * first, tried, added])
    mine.learn(Feedback("0.0", 1.0, -1, serial=4), THREE, every_round=True)  # line 25 as printed
    again = 0.2 + 0.8 * (0.2 + 0.8 * first)
    np.testing.assert_allclose(rewards(mine, THREE), [again, tried, added + 1.0 / 2])


def test_a_good_try_speaks_for_cohorts_nearby() -> None:
    mine = Affinity()
    mine.learn(None, THREE)
    mine.learn(Feedback("0.1.0", 0.6, -1, serial=1), THREE)
    np.testing.assert_allclose(rewards(mine, THREE), [0.6 / 3, 0.2 * 0.6, 0.6 / 2])


def test_members_of_a_split_cohort_do_not_explore_in_their_own_part() -> None:
    mine = Affinity({"0": AffinityRecord(reward=0.0, index=1, known=True)})
    mine.learn(None, TWO)
    mine.learn(Feedback("0.1", 1.0, -1, serial=1), TWO)
    np.testing.assert_allclose(rewards(mine, TWO), [0.0, 0.2 + 0.8 * 0.1])


def test_children_start_from_the_parent_with_a_little_more_on_the_own_side() -> None:
    mine = Affinity({"0": AffinityRecord(reward=0.4, index=1, known=True)})
    mine.learn(None, TWO)
    np.testing.assert_allclose(rewards(mine, TWO), [0.4, 0.5])
    assert [mine.records[leaf].known for leaf in TWO.leaves()] == [False, True]
    assert [mine.records[leaf].index for leaf in TWO.leaves()] == [-1, -1]


def test_feedback_that_arrives_twice_counts_once() -> None:
    mine = Affinity()
    mine.learn(None, TWO)
    for _ in range(2):
        mine.learn(Feedback("0.0", 1.0, 0, serial=7), TWO)
    assert mine.records["0.0"] == AffinityRecord(pytest.approx(0.2), 0, True)


def test_feedback_for_a_cohort_that_was_split_meanwhile_still_counts() -> None:
    mine = Affinity()
    mine.learn(None, ONE)
    mine.learn(Feedback("0", math.nan, 1, serial=1), TWO)
    assert rewards(mine, TWO) == [0.0, 0.1]


def test_without_a_reward_only_the_cluster_is_learnt() -> None:
    mine = Affinity({"0": AffinityRecord(reward=0.3)})
    mine.learn(Feedback("0", math.nan, 2, serial=1), ONE)
    assert mine.records["0"] == AffinityRecord(0.3, 2, True)
    mine.learn(Feedback("0", 1.0, -1, serial=2), ONE)
    assert mine.records["0"].index == 2  # no new cluster: the old one stays


def test_a_server_that_went_back_makes_clients_forget_what_came_after() -> None:
    mine = Affinity({"0": AffinityRecord(0.0, 1, True), "0.1": AffinityRecord(0.5, -1, True)})
    mine.learn(None, ONE)
    assert list(mine.records) == ["0"]


def test_records_survive_a_save() -> None:
    mine, other = Affinity(), Affinity()
    mine.learn(Feedback("0", 0.5, 1, serial=3), THREE)
    other.load_state_dict(mine.state_dict())
    assert other.records == mine.records
    other.learn(Feedback("0", 0.5, 1, serial=3), THREE)
    assert other.records == mine.records


@pytest.mark.parametrize(
    ("column", "values"),
    [("rewards", [math.inf]), ("rewards", [1e9]), ("rewards", []), ("indices", [10**12])],
)
def test_records_that_make_no_sense_are_refused(column: str, values: list[Any]) -> None:
    state = Affinity({"0": AffinityRecord()}).state_dict() | {column: values}
    with pytest.raises(ValueError, match=f"{column}|records"):
        Affinity().load_state_dict(state)


def best(affinity: Affinity, tree: CohortTree) -> set[str]:
    """The leaves that a request may go to."""
    records = affinity.inherited(tree).records
    most = max(records[leaf].reward for leaf in tree.leaves())
    return {leaf for leaf in tree.leaves() if records[leaf].reward == most}


def test_a_request_goes_down_the_index_then_the_larger_reward_then_anywhere() -> None:
    assert best(Affinity({"0": AffinityRecord(index=0)}), THREE) == {"0.0"}
    assert best(Affinity({"0": AffinityRecord(0.3, 1), "0.1": AffinityRecord(0.4, 1)}), THREE) == {
        "0.1.1"
    }
    assert best(Affinity({"0.1.0": AffinityRecord(-1.0), "0.1": AffinityRecord(0.5)}), THREE) == {
        "0.1.1"
    }
    assert best(Affinity({"0": AffinityRecord(0.2), "0.1": AffinityRecord(0.5)}), THREE) == {
        "0.1.0",
        "0.1.1",
    }
    assert best(Affinity(), THREE) == set(THREE.leaves())
    assert best(Affinity({"0.0": AffinityRecord(9.0, index=1)}), THREE) == {
        "0.0"
    }  # a leaf is a leaf


def test_cohorts_that_never_existed_are_forgotten_and_told_of() -> None:
    assert best(Affinity({"0.1.9": AffinityRecord(9.0), "0.1": AffinityRecord(0.1, 1)}), THREE) == {
        "0.1.1"
    }
    assert best(
        Affinity({"made up": AffinityRecord(9.0), "0": AffinityRecord(index=0)}), THREE
    ) == {"0.0"}
    told = Affinity(
        {
            "made up": AffinityRecord(5.0),
            "0.9": AffinityRecord(),
            "0.1.0.3": AffinityRecord(),
            "0": AffinityRecord(),
        }
    )
    assert told.strange(THREE) == ["made up", "0.9"]
    assert list(told.inherited(THREE).records) == THREE.cohorts()


def test_a_cohort_name_that_no_tree_has_is_refused_at_once() -> None:
    state = {"cohorts": ["0." * 400_000], "rewards": [0.0], "indices": [0], "known": [True]}
    with pytest.raises(ValueError, match="at most 200 characters"):
        Affinity().load_state_dict({**state, "serial": 1})
