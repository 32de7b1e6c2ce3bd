"""Names: one holder at a time, and back to the first when it claims again."""

from typing import Any

import pytest
from fakes import FakeGrid, Notes, answer, rounds, small_model
from flwr.app import ConfigRecord, Message
from forager.core.config import read_config
from forager.core.log.events import Quarantined, Selected
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ANSWERS, CLIENT, CLIENT_KEY, VERSIONS
from forager.core.wire.versions import versions
from forager.strategies.build import build_strategy
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.roster import Roster


class Nodes(FakeGrid):
    """A grid whose nodes come, go and call themselves what a test says."""

    def __init__(self, claims: dict[int, str], registered: dict[int, str] | None = None) -> None:
        super().__init__([])
        self.claims, self.registered = claims, registered or {}
        self.show(*claims)

    def show(self, *nodes: int) -> "Nodes":
        self.nodes = {node: self.claims[node] for node in nodes}
        return self

    def get_nodes(self):
        class Node:
            def __init__(self, node_id: int, name: str) -> None:
                self.node_id, self.name, self.public_key = node_id, name, b""

        return [Node(node, self.registered.get(node, "")) for node in self.nodes]


def test_a_name_granted_to_another_is_not_held_twice_when_its_holder_is_back() -> None:
    federation, grid = Federation(), Nodes({1: "7", 2: "7", 3: "8"})
    assert federation.keys(federation.nodes(grid.show(1, 3))) == ["7", "8"]
    assert federation.keys(federation.nodes(grid.show(2, 3))) == ["7", "8"]  # 1 is away
    keys = federation.keys(federation.nodes(grid.show(1, 2, 3)))
    assert len(set(keys)) == 3
    assert federation.key(2) == "7"
    assert federation.keys(federation.nodes(grid.show(1, 3))) == ["7", "8"]  # 2 is away


def test_two_nodes_of_one_name_are_in_the_events() -> None:
    federation, grid, seen = Federation(), Nodes({1: "7", 2: "7"}), []
    federation.journal = seen.append
    federation.nodes(grid)
    (event,) = seen
    assert isinstance(event, Quarantined)
    assert "claims the name 7, which is another's" in event.reason


def test_a_node_without_a_name_of_its_own_goes_by_the_one_it_was_registered_by() -> None:
    federation = Federation()
    grid = Nodes({1: "", 2: ""}, registered={1: "camera-7"})
    assert sorted(federation.keys(federation.nodes(grid))) == ["camera-7", Roster.nameless(2)]


def test_a_registered_name_wins_over_what_a_node_calls_itself(said: list[str]) -> None:
    federation, seen = Federation(allowed=["camera-7"]), Notes()
    federation.journal = seen
    grid = Nodes({1: "camera-7", 2: "camera-7"}, registered={1: "evil", 2: "camera-7"})
    assert federation.nodes(grid) == [2], "the one that was enrolled by that name"
    assert [federation.key(1), federation.key(2)] == ["evil", "camera-7"]
    (event,) = seen.of(Quarantined)
    assert (event.client, event.reason) == ("evil", "claims the name camera-7, which is another's")
    assert any(line.startswith("client evil claims the name camera-7") for line in said)


@pytest.mark.parametrize("first", [True, False], ids=["before the owner", "after it"])
@pytest.mark.parametrize("away", [True, False], ids=["the owner is away", "it is here"])
def test_a_registered_name_is_its_owners_here_or_away(first: bool, away: bool) -> None:
    federation, notes = Federation(), Notes()
    federation.journal = notes
    grid = Nodes({1: "camera-7", 2: "whatever"}, registered={2: "camera-7"})
    federation.nodes(grid.show(1) if first else grid.show(2))
    federation.nodes(grid.show(1, 2))
    federation.nodes(grid.show(1) if away else grid.show(1, 2))
    assert [federation.key(1), federation.key(2)] == [Roster.nameless(1), "camera-7"]
    assert [event.client for event in notes.of(Quarantined)] == [Roster.nameless(1)]


def test_a_device_that_is_registered_anew_has_its_name_again() -> None:
    federation = Federation()
    grid = Nodes({1: "", 2: ""}, registered={1: "camera-7", 2: "camera-7"})
    federation.nodes(grid.show(1))
    federation.nodes(grid.show(1, 2))
    assert federation.key(2) == Roster.nameless(2), "as long as the first is here"
    federation.nodes(grid.show(2))
    grid.claims[3] = ""
    federation.nodes(grid.show(2, 3))
    assert federation.key(2) == "camera-7"


@pytest.mark.parametrize("kind", ["key", "node"])
def test_names_that_the_server_gives_cannot_be_claimed(kind: str) -> None:
    federation, given = Federation(), f"{kind}-0123456789abcdef"
    federation.nodes(Nodes({1: given}))
    assert federation.key(1) == Roster.nameless(1)


def test_node_ids_are_in_no_event_and_no_line_of_the_log(said: list[str]) -> None:
    federation, notes = Federation(allowed=["8"]), Notes()
    federation.journal = notes
    federation.nodes(Nodes({987654: "7", 987655: "7", 987656: ""}))
    assert notes.events
    assert said
    assert "98765" not in str(notes.events) + str(said)


def test_only_those_who_are_allowed_take_part(said) -> None:
    federation = Federation(allowed=["7", "9"])
    grid = Nodes({1: "7", 2: "8", 3: "9"})
    assert federation.keys(federation.nodes(grid)) == ["7", "9"]
    assert federation.keys(federation.nodes(grid)) == ["7", "9"]
    assert said == ["left out: 1 of 3 clients, 8 (not in clients.allowed)"]


def test_who_has_been_here_and_is_gone_is_away() -> None:
    federation, grid = Federation(), Nodes({1: "7", 2: "8"})
    assert federation.roster.away() == []
    federation.nodes(grid)
    assert federation.roster.away() == []
    federation.nodes(grid.show(1))
    assert federation.roster.away() == ["8"]
    federation.nodes(grid.show(1, 2))
    assert federation.roster.away() == []


_NEWER = [f"{line.split()[0]} 99.0.0" for line in versions()]


@pytest.mark.parametrize(
    ("introduction", "warning"),
    [
        ({}, "does not say its version: its app is an older one"),
        ({VERSIONS: _NEWER[:1]}, "has forager 99.0.0 instead of"),
        ({VERSIONS: _NEWER, ANSWERS: ["telepathy"], "mood": "good"}, "has forager 99.0.0"),
        ({VERSIONS: 7, ANSWERS: "all"}, "does not say its version"),
    ],
    ids=["older", "newer", "newer, with what we do not know", "of another kind"],
)
def test_a_client_of_another_version_is_named_and_takes_part(
    said: list[str], introduction: dict[str, Any], warning: str
) -> None:
    def other(message: Message, key: str, look: int) -> list[Message]:
        return [answer(message, {CLIENT: ConfigRecord({CLIENT_KEY: key, **introduction})})]

    keys = ["0", "1", "2", "3"]
    grid, federation, notes = FakeGrid(keys, names={"2": other}), Federation(), Notes()
    federation.journal = notes
    config = read_config({"client-selector": "aoi", "num-clients": 4, "clients-per-round": 2})
    rounds(build_strategy(config, federation), to_record(small_model()), grid, range(1, 3))
    (line,) = [line for line in said if "mixed versions" in line]
    assert line.startswith(f"mixed versions: client 2 {warning}")
    chosen = [e.chosen for e in notes.of(Selected) if e.phase == "train"]
    assert sorted(key for each in chosen for key in each) == keys


def test_an_app_that_answers_for_itself_is_named_and_asked_nothing(said: list[str]) -> None:
    def introduce(message: Message, key: str, look: int) -> list[Message]:
        name = "own" if key == "1" else CLIENT
        return [answer(message, {name: ConfigRecord({CLIENT_KEY: key})})]

    roster, grid = Roster(route="train"), FakeGrid("012", dict.fromkeys("012", introduce))
    roster.identify(grid, 1.0)
    (line,) = [line for line in said if "has no forager.client_mod" in line]
    assert line.startswith(f"client {roster.called(roster.key(501))} has")
    assert [roster.can_answer(node, "summary") for node in grid.nodes] == [True, False, True]
