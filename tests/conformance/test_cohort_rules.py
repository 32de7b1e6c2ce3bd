"""Promises that everything which decides on cohorts keeps, whatever the method."""

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from forager.core.storage import tree
from forager.selectors.cohorts.affinity import Affinity
from forager.selectors.cohorts.auxo import Auxo
from forager.selectors.cohorts.cfl import Cfl
from forager.selectors.cohorts.clove import Clove
from forager.selectors.cohorts.fl_hc import FlHc
from forager.selectors.cohorts.flexcfl import FlexCfl
from forager.selectors.cohorts.ifca import Ifca
from forager.selectors.cohorts.split import SplitRule
from forager.selectors.cohorts.split_testing import SplitTest
from numpy.typing import NDArray

Updates = NDArray[np.float64]
Groups = dict[str, list[str]]

_EAGER = SplitRule(first_round=2, rounds=1, participants=2)


class SplitTests:
    """The split test, driven as a layer would, with clients that are not asked."""

    def __init__(self) -> None:
        self.core = SplitTest(parts=3, rule=_EAGER, asks=False)

    def play(self, number: int, keys: Sequence[str], updates: Updates) -> Groups:
        places = np.array(self.core.place(keys, training=True, order=number), dtype=object)
        groups = {leaf: np.flatnonzero(places == leaf) for leaf in self.core.leaves()}
        found = {leaf: [keys[row] for row in rows] for leaf, rows in groups.items()}
        for leaf, rows in groups.items():
            self.core.observe(leaf, found[leaf], updates[rows], population=len(keys))
        return found


class Auxos:
    """Auxo, with clients that keep their records."""

    def __init__(self) -> None:
        self.core = Auxo(parts=3, rule=_EAGER, first_cluster_round=1)
        self.records: dict[str, Affinity] = {}

    def play(self, number: int, keys: Sequence[str], updates: Updates) -> Groups:
        place = {key: row for row, key in enumerate(keys)}
        for key in keys:
            mine = self.records.setdefault(key, Affinity())
            mine.learn(self.core.feedback_for(key), self.core.tree)
        matched = self.core.match(keys, [self.records[key] for key in keys])
        for leaf, members in matched.items():
            rows = updates[[place[key] for key in members]]
            self.core.observe(leaf, members, rows, [self.records[key] for key in members])
        return matched


class Cfls:
    """CFL: everyone in every round."""

    def __init__(self) -> None:
        self.core = Cfl(after_round=1, mean_below=2.0, max_above=0.5)

    def play(self, number: int, keys: Sequence[str], updates: Updates) -> Groups:
        place, groups = {key: row for row, key in enumerate(keys)}, self.core.members.of(keys)
        for leaf, members in groups.items():
            self.core.observe(leaf, members, updates[[place[key] for key in members]], number)
        return groups


class FlexCfls:
    """FlexCFL: groups at the start, then newcomers."""

    def __init__(self) -> None:
        self.core = FlexCfl(groups=3)

    def play(self, number: int, keys: Sequence[str], updates: Updates) -> Groups:
        if self.core.leaves() == ["0"] and len(keys):
            self.core.start(keys, updates)
        for key, update in zip(keys, updates, strict=True):
            if self.core.members.leaf_of(key) is None:
                self.core.join(key, update)
        return self.core.members.of(keys)


class FlHcs:
    """FL+HC: once, after some rounds."""

    def __init__(self) -> None:
        self.core = FlHc(cluster_round=2, clusters=3)

    def play(self, number: int, keys: Sequence[str], updates: Updates) -> Groups:
        if self.core.due(number) and len(keys):
            self.core.cluster(keys, updates)
        return self.core.members.of(keys)


class Ifcas:
    """IFCA: losses of all models, here distances to three points."""

    def __init__(self) -> None:
        self.core = Ifca(models=3)

    def play(self, number: int, keys: Sequence[str], updates: Updates) -> Groups:
        losses = np.linalg.norm(updates[:, None, :] - np.eye(8)[None, :3], axis=2)
        self.core.observe(keys, losses)
        return self.core.members.of(keys)


class Cloves(Ifcas):
    """CLoVE: the same losses, clustered."""

    def __init__(self) -> None:
        self.core = Clove(models=3)


RULES: dict[str, Callable[[], Any]] = {
    "split-test": SplitTests,
    "auxo": Auxos,
    "cfl": Cfls,
    "flexcfl": FlexCfls,
    "fl-hc": FlHcs,
    "ifca": Ifcas,
    "clove": Cloves,
}
rules = pytest.mark.parametrize("name", sorted(RULES))


def round_of(number: int, clients: int = 24, prefix: str = "c") -> tuple[list[str], Updates]:
    """Clients in three groups, and their updates of one round."""
    keys = [f"{prefix}{i}" for i in range(clients)]
    noise = 0.1 * np.random.default_rng(number).normal(size=(clients, 8))
    return keys, np.eye(8)[np.arange(clients) % 3] + noise


def play(rule: Any, rounds: range, **options: Any) -> list[Groups]:
    return [rule.play(number, *round_of(number, **options)) for number in rounds]


def grouped(places: Sequence[str], keys: Sequence[str]) -> Groups:
    return {p: [k for k, q in zip(keys, places, strict=True) if q == p] for p in set(places)}


@rules
def test_the_groups_are_found(name: str) -> None:
    rule = RULES[name]()
    play(rule, range(8))
    keys = round_of(0)[0]
    if name == "split-test":
        found = grouped(rule.core.place(keys), keys)
    else:
        members = rule.core.members
        found = members(keys) if name == "auxo" else members.of(keys)
    pure = [{int(key[1:]) % 3 for key in keys} for keys in found.values()]
    assert len(found) >= 3
    assert all(len(group) == 1 for group in pure)


@rules
def test_seeded_runs_repeat_and_touch_no_global_generator(name: str) -> None:
    np.random.seed(1)
    first = play(RULES[name](), range(8))
    np.random.seed(2)
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    assert play(RULES[name](), range(8)) == first
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # type: ignore[index]


@rules
def test_everyone_has_exactly_one_place(name: str) -> None:
    for groups in play(RULES[name](), range(8)):
        assert sorted(key for keys in groups.values() for key in keys) == sorted(round_of(0)[0])


@rules
def test_state_survives_a_save_and_continues_identically(name: str) -> None:
    whole = RULES[name]()
    play(whole, range(4))
    data = tree.to_bytes(whole.core.state_dict(), "test")
    resumed = copy.deepcopy(whole)
    resumed.core = RULES[name]().core
    resumed.core.load_state_dict(tree.from_bytes(data, "test"))
    assert play(resumed, range(4, 10)) == play(whole, range(4, 10))


@rules
def test_a_state_neither_changes_with_later_calls_nor_is_changed_by_them(name: str) -> None:
    rule, other = RULES[name](), RULES[name]()
    play(rule, range(4))
    state = rule.core.state_dict()
    before = copy.deepcopy(state)
    other.core.load_state_dict(state)
    play(rule, range(4, 7))
    play(other, range(4, 7))
    np.testing.assert_equal(state, before)


@rules
def test_a_state_of_another_tree_is_refused_and_nothing_changes(name: str) -> None:
    rule, fresh = RULES[name](), RULES[name]()
    play(rule, range(6))
    state = rule.core.state_dict()
    place = state.get("members", state)
    place["tree"] = {"leaves": ["0.0", "0.1.0", "0.1.1", "0.1.2", "0.2", "0.3"]}
    if "leaf_of" in place:
        place["leaf_of"] = {"x": "0.9"}
    before = copy.deepcopy(fresh.core.state_dict())
    with pytest.raises(ValueError, match=r"state|leaves"):
        fresh.core.load_state_dict(state)
    np.testing.assert_equal(fresh.core.state_dict(), before)


@rules
def test_inputs_are_not_changed(name: str) -> None:
    rule = RULES[name]()
    for number in range(5):
        keys, updates = round_of(number)
        given = list(keys), updates.copy()
        rule.play(number, keys, updates)
        assert keys == given[0]
        np.testing.assert_array_equal(updates, given[1])


@rules
@pytest.mark.parametrize("clients", [1, 2])
def test_one_and_two_clients(name: str, clients: int) -> None:
    """Fewer than cohorts."""
    rule = RULES[name]()
    for groups in play(rule, range(5), clients=clients):
        assert sum(len(keys) for keys in groups.values()) == clients


@rules
def test_identical_and_zero_updates(name: str) -> None:
    for updates in (np.ones((12, 8)), np.zeros((12, 8))):
        rule, keys = RULES[name](), round_of(0, clients=12)[0]
        for number in range(5):
            groups = rule.play(number, keys, updates)
        assert sum(len(members) for members in groups.values()) == 12
        if name not in {
            "cfl",
            "ifca",
            "clove",
            "fl-hc",
        }:  # those have a fixed number, or look at lengths
            assert list(groups) == ["0"]


@rules
def test_clients_may_come_and_go_and_cohorts_empty(name: str) -> None:
    rule = RULES[name]()
    play(rule, range(6))
    only = [key for key in round_of(0)[0] if int(key[1:]) % 3 == 0]
    for number in range(6, 10):
        _, updates = round_of(number)
        groups = rule.play(number, [*only, f"new{number}"], updates[: len(only) + 1])
        assert sorted(k for keys in groups.values() for k in keys) == sorted(
            [*only, f"new{number}"]
        )


@rules
def test_names_may_be_any_text(name: str) -> None:
    odd = ["", "a/b", "__array__", "käse \N{SNOWMAN}", "0" * 200, "\0", "0.1", "None", "-1"]
    rule, fresh = RULES[name](), RULES[name]()
    for number in range(5):
        rule.play(number, odd, round_of(number, clients=9)[1])
    fresh.core.load_state_dict(
        tree.from_bytes(tree.to_bytes(rule.core.state_dict(), "test"), "test")
    )
    np.testing.assert_equal(fresh.core.state_dict(), rule.core.state_dict())


def test_split_test_forgets_updates_of_those_who_never_come_back() -> None:
    cohorts = SplitTest(parts=1)
    for number in range(200):
        keys, updates = round_of(number, prefix=f"life-{number}-")
        cohorts.observe("0", keys, updates, population=24)
    state = cohorts.state_dict()["leaves"]["0"]["evidence"]
    assert len(state["keys"]) == len(state["points"]) == 2048


def test_auxo_forgets_names_that_never_come_back() -> None:
    auxo = Auxo(capacity=100)
    for number in range(40):
        keys, updates = round_of(number, prefix=f"life-{number}-")
        auxo.observe("0", keys, updates, [Affinity()] * len(keys))
    state = auxo.state_dict()
    assert len(state["posts"]) == 100
    assert len(json.dumps(state, default=np.ndarray.tolist)) < 40_000
