import pytest
from forager.selectors.cohorts.tree import CohortTree, Membership, in_order, path_distance


def test_leaves_are_paths_in_the_order_of_their_numbers() -> None:
    tree = CohortTree()
    assert tree.leaves() == ["0"]
    assert tree.split("0", 11)[10] == "0.10"
    assert tree.split("0.2", 2) == ["0.2.0", "0.2.1"]
    assert tree.leaves()[1:5] == ["0.1", "0.2.0", "0.2.1", "0.3"]
    assert tree.leaves() == in_order(tree.leaves())


def test_distance_is_that_of_the_explored_one_to_the_common_ancestor() -> None:
    assert path_distance("0.0.1", "0.0.0") == 1
    assert path_distance("0.0.1", "0.1") == 2
    assert path_distance("0.1", "0.0.1") == 1  # not symmetric
    assert path_distance("0.1", "0.1") == 0
    assert path_distance("0.0.1", "0") == 2


def test_a_name_that_begins_like_another_is_not_below_it() -> None:
    assert path_distance("0.11", "0.1.0") == 1


def test_only_leaves_are_split_and_into_several() -> None:
    tree = CohortTree()
    tree.split("0", 2)
    with pytest.raises(ValueError, match="'0' was split before"):
        tree.split("0", 2)
    with pytest.raises(ValueError, match=r"'0\.7' never existed"):
        tree.split("0.7", 2)
    with pytest.raises(ValueError, match="at least 2"):
        tree.split("0.0", 1)
    assert tree.leaves() == ["0.0", "0.1"]


def test_state_survives() -> None:
    tree, other = CohortTree(), CohortTree()
    tree.split("0", 2, first=4)
    tree.split("0.5", 3)
    other.load_state_dict(tree.state_dict())
    assert other.cohorts() == tree.cohorts() == ["0", "0.4", "0.5", "0.5.0", "0.5.1", "0.5.2"]
    assert other.split("0.4", 2) == tree.split("0.4", 2)


@pytest.mark.parametrize(
    "leaves", [["0.0", "0"], ["0.0", "0.0"], ["0.0"], ["1"], ["0.x", "0.1"], ["0.00", "0.1"], []]
)
def test_leaves_that_are_no_tree_are_refused(leaves: list[str]) -> None:
    with pytest.raises(ValueError, match="leaves"):
        CohortTree.of_leaves(leaves)


def test_members_of_a_split_cohort_who_were_not_there_go_where_most_are() -> None:
    members = Membership()
    for key in "abcd":
        members.put(key, "0")
    members.split("0", [["a"], ["b", "c"]])
    assert members.leaf_of("d") is None
    assert members.of(list("abcd")) == {"0.0": ["a"], "0.1": ["b", "c", "d"]}
    members.put("d", "0.0")
    assert members.leaf_of("d") == "0.0"
    with pytest.raises(ValueError, match="leaf"):
        members.put("d", "0")


def test_members_of_another_tree_are_refused() -> None:
    members = Membership()
    members.split("0", [["a"], ["b"]])
    state = members.state_dict()
    with pytest.raises(ValueError, match=r"members of \['0.0', '0.1'\]"):
        Membership().load_state_dict(state | {"tree": {"leaves": ["0"]}})
    other = Membership()
    other.load_state_dict(state)
    assert other.of(["a", "b"]) == members.of(["a", "b"])
