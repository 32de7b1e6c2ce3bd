"""Runs for some of the nodes only: by tag, and together with names."""

import time
from typing import Any

import pytest
from fakes import FakeGrid, Notes, answer, rounds, small_model
from flwr.app import ConfigRecord, Context, Message, RecordDict
from forager.client_app.handlers.identity import introduction
from forager.core.config import ConfigError, read_config
from forager.core.log.events import LeftOut, Selected
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import CLIENT, CLIENT_KEY, TAGS, VERSIONS
from forager.core.wire.versions import versions
from forager.server_app.app import build_loop
from forager.strategies.build import build_strategy
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.roster import Admission, Roster


def node(key: str, **node_config: Any) -> Any:
    """A client that answers as the app does on a node with this config."""

    def says(message: Message, own: str, look: int) -> list[Message]:
        context = Context(1, 2, {"client-id": key, **node_config}, RecordDict(), {})
        return [answer(message, {CLIENT: ConfigRecord(introduction(context))})]

    return says


def four() -> FakeGrid:
    names = {"0": node("0", tags="gpu,site-a"), "1": node("1", tags="site-b"), "2": node("2")}
    return FakeGrid(["0", "1", "2", "3"], names=names | {"3": node("3", tags="site-a")})


def test_a_run_for_some_tags_trains_nobody_else(said: list[str]) -> None:
    grid, notes = four(), Notes()
    federation = Federation(tags=["site-a", "site-c"])
    federation.journal = notes
    config = read_config({"client-selector": "aoi", "num-clients": 4, "clients-per-round": 1})
    rounds(build_strategy(config, federation), to_record(small_model()), grid, range(1, 5))
    chosen = [key for e in notes.of(Selected) if e.phase == "train" for key in e.chosen]
    assert sorted(chosen) == ["0", "0", "3", "3"]
    wanted = "the run is for clients.tags = 'site-a,site-c'"
    assert said == [
        f"left out: 1 of 4 clients, 1 (has the tags site-b; {wanted})",
        f"left out: 1 of 4 clients, 2 (has no tags; {wanted})",
    ]
    assert [(e.count, e.clients, e.reason) for e in notes.of(LeftOut)] == [
        (1, ["1"], f"has the tags site-b; {wanted}"),
        (1, ["2"], f"has no tags; {wanted}"),
    ]


def test_a_share_of_the_clients_is_one_of_those_that_the_run_is_for() -> None:
    notes, federation = Notes(), Federation(tags=["site-a"])
    federation.journal = notes
    config = read_config({"client-selector": "aoi", "num-clients": 4, "fraction-train": 0.5})
    rounds(build_strategy(config, federation), to_record(small_model()), four(), range(1, 3))
    chosen = [e.chosen for e in notes.of(Selected) if e.phase == "train"]
    assert sorted(chosen) == [["0"], ["3"]]
    assert len(notes.of(LeftOut)) == 2


def test_one_of_several_tags_is_enough() -> None:
    federation = Federation(tags=["gpu", "site-b"])
    assert federation.keys(federation.nodes(four())) == ["0", "1"]


def test_names_and_tags_hold_together() -> None:
    federation = Federation(allowed=["0", "1"], tags=["site-a"])
    assert federation.keys(federation.nodes(four())) == ["0"]


def test_many_are_counted_and_five_named(said: list[str]) -> None:
    federation = Federation(tags=["gpu"])
    assert not federation.nodes(FakeGrid([str(i) for i in range(12)]))
    (line,) = said
    assert line.startswith("left out: 12 of 12 clients, 0, 1, 2, 3, 4 and 7 more (has no tags; ")


@pytest.mark.parametrize("tags", ["gpu,,site-a", "site a", "-gpu", "x" * 64])
def test_tags_that_cannot_be_read_are_reported_and_the_node_has_none(
    said: list[str], tags: str
) -> None:
    grid = FakeGrid(["0", "1"], names={"0": node("0", tags=tags), "1": node("1", tags="gpu")})
    federation = Federation(tags=["gpu"])
    assert federation.keys(federation.nodes(grid)) == ["1"]
    assert said[0].startswith(f"client 0: node config: tags = {tags!r}: ")
    assert "tags are separated by commas" in said[0]
    assert Federation().nodes(grid)  # which is no reason to leave it out of other runs


@pytest.mark.parametrize("said_tags", [7, ["gpu", "a\nb"], "gpu"])
def test_nonsense_from_a_client_is_no_tag(said_tags: Any) -> None:
    def liar(message: Message, key: str, look: int) -> list[Message]:
        said = ConfigRecord({CLIENT_KEY: key, VERSIONS: versions(), TAGS: said_tags})
        return [answer(message, {CLIENT: said})]

    federation = Federation(tags=["gpu"])
    assert not federation.nodes(FakeGrid(["0"], names={"0": liar}))


def test_who_does_not_answer_at_first_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    now, busy = [0.0], [True]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def later(message: Message, key: str, look: int) -> list[Message]:
        return [] if busy[0] else node("0", tags="gpu")(message, key, look)

    federation = Federation(tags=["gpu"])
    grid = FakeGrid(["0", "1"], names={"0": later, "1": node("1", tags="gpu")})
    assert federation.keys(federation.nodes(grid)) == ["1"]
    assert said[-1].startswith(
        f"left out: 1 of 2 clients, {Roster.nameless(500)} (has not answered yet; "
    )
    busy[0] = False
    assert federation.keys(federation.nodes(grid)) == ["1"]  # not at once
    now[0] = 121.0
    assert federation.keys(federation.nodes(grid)) == ["0", "1"]
    asked = len(grid.sent)
    now[0] = 1e6
    assert len(federation.nodes(grid)) == 2
    assert len(grid.sent) == asked


def test_where_everyone_may_take_part_nobody_is_asked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation, grid = Federation(), FakeGrid(["0", "1"], names={"0": lambda *_: []})
    federation.nodes(grid)
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    asked = len(grid.sent)
    assert len(federation.nodes(grid)) == 2
    assert len(grid.sent) == asked


def test_tags_in_the_run_config_are_checked_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"clients\.tags = 'site a'.*separated by commas"):
        read_config({"clients.tags": "site a"})


def test_a_simulation_has_no_tags() -> None:
    class InMemoryGrid(FakeGrid):
        """What Flower calls the grid of its simulation."""

    with pytest.raises(ConfigError, match=r"clients\.tags = 'gpu': simulated clients have no tags"):
        build_loop(InMemoryGrid(["0"]), {"clients.tags": "gpu"})


def test_a_refusal_says_which_setting_leaves_a_client_out() -> None:
    site = Admission(tags=["site-a", "site-b"])
    assert site.refusal("camera-1", ["gpu", "site-b"]) == ""
    told = "has the tags gpu; the run is for clients.tags = 'site-a,site-b'"
    assert site.refusal("camera-2", ["gpu"]) == told
    assert Admission(allowed=["camera-1"]).refusal("camera-2", None) == "not in clients.allowed"
