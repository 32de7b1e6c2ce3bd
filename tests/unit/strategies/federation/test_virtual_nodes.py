"""Numbered clients are to all that look at them what a list of names would be."""

import numpy as np
import pytest
from forager.strategies.federation.client_memory import ClientMemory
from forager.strategies.federation.grids import GridView, NumberedKeys, NumberedNodes, kept_nodes
from forager.strategies.federation.roster import Roster
from forager.tools.engine.local_grid import LocalGrid

GAPS = np.array([0, 2, 3, 7])


@pytest.mark.parametrize("numbers", [range(5), range(0), GAPS])
def test_keys_are_a_sequence_of_names(numbers: "range | np.ndarray") -> None:
    keys, names = NumberedKeys(numbers), [str(n) for n in numbers]
    assert list(keys) == names
    assert len(keys) == len(names)
    assert [keys[i] for i in range(len(names))] == names
    assert list(keys[1:]) == names[1:]
    asked = ["0", "3", "03", "5", "x", "", "-1", "7"]
    assert [key in keys for key in asked] == [key in names for key in asked]
    assert keys.positions(asked) == [names.index(k) if k in names else -1 for k in asked]


@pytest.mark.parametrize("numbers", [range(5), GAPS])
def test_nodes_are_a_sequence_of_ids(numbers: "range | np.ndarray") -> None:
    nodes, ids = NumberedNodes(1000, numbers), [1000 + int(n) for n in numbers]
    assert list(nodes) == ids == [nodes[i] for i in range(len(ids))]
    assert [node in nodes for node in (999, 1000, 1001, 1007, 1008)] == [
        node in ids for node in (999, 1000, 1001, 1007, 1008)
    ]
    which = np.arange(len(ids)) % 2 == 0
    assert list(kept_nodes(nodes, which)) == kept_nodes(ids, which)
    assert nodes == NumberedNodes(1000, numbers) != NumberedNodes(1001, numbers)


def test_a_memory_knows_the_same_of_numbered_and_of_listed_clients() -> None:
    numbered, listed = ClientMemory(), ClientMemory()
    keys = NumberedKeys(range(50))
    rng = np.random.default_rng(0)
    for server_round in range(6):
        chosen = [str(n) for n in rng.choice(50, 5, replace=False)]
        numbered.round_passed(keys, chosen)
        listed.round_passed(list(keys), chosen)
        for key in chosen:
            numbered.learn(key, "loss", float(server_round))
            listed.learn(key, "loss", float(server_round))
        if server_round == 3:  # what was saved and loaded is the same
            numbered.load_state_dict(numbered.state_dict())
    some = NumberedKeys(GAPS)
    for name in ("age", "participated", "loss", "never"):
        for asked in (keys, some):
            expected = listed.values(list(asked), name)
            np.testing.assert_equal(numbered.values(asked, name), expected)
            np.testing.assert_equal(numbered.values(list(asked), name), expected)
            assert numbered.values(asked, name).dtype == expected.dtype
    np.testing.assert_equal(numbered.picked(keys), listed.picked(list(keys)))


def test_a_newcomer_is_as_old_as_its_stay() -> None:
    memory = ClientMemory()
    memory.round_passed(["a"], [])
    memory.round_passed(["a", "b"], [])
    memory.round_passed(["a"], ["a"])
    assert memory.ages(["a", "b", "c"]) == [0, 2, 0]


def test_numbered_nodes_are_not_asked_for_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forager.tools.engine.local_grid._MOST_ASKED", 3)
    grid = LocalGrid(4, {})
    monkeypatch.setattr(grid, "send_and_receive", None)
    roster = Roster()
    roster.identify(grid, 1.0)
    roster.identify(GridView(grid, [1002]), 1.0)
    assert roster.keys(grid.get_node_ids()) == NumberedKeys(range(4))
    assert [roster.key(node) for node in (1000, 1003, 1004)] == ["0", "3", Roster.nameless(1004)]
    assert roster.keys([1003, 1001]) == ["3", "1"]
    assert roster.in_order([1003, 1001]) == [1001, 1003]
