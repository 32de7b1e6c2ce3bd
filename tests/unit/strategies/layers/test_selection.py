import logging
import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    assert_same,
    failing,
    honest,
    honest_records,
    listening_to,
    never,
    num_examples,
    one_round,
    rounds,
    small_model,
)
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from forager.core.log.events import Quarantined, Selected
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import (
    IDENTIFY,
    LOSS,
    METRICS,
    NUM_EXAMPLES,
    SIMILARITY,
    SUMMARY,
    UTILITY,
    VERSIONS,
)
from forager.core.wire.versions import versions
from forager.selectors.client_selectors.age import OldestFirst
from forager.selectors.client_selectors.base import Candidates, ClientSelector
from forager.selectors.client_selectors.by_loss import PowerOfChoice
from forager.selectors.client_selectors.cluster_oracle import ClusterOracle
from forager.selectors.client_selectors.oort import Oort
from forager.selectors.client_selectors.plain import Everyone, RoundRobin, Uniform
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.grids import GridView, GridWrapper
from forager.strategies.federation.questions import Questions
from forager.strategies.federation.roster import Admission, Roster
from forager.strategies.layers.candidates import CheckedClaims, Participation
from forager.strategies.layers.selection import NobodyTrained, Selection

KEYS = [str(i) for i in range(10)]


def selection(
    selector: ClientSelector | None = None, **settings: Any
) -> tuple[Selection, Roster, Notes]:
    inner = FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    part = {
        field.name: settings.pop(field.name)
        for field in fields(Participation)
        if field.name in settings
    }
    layer = Selection(inner, selector or Uniform(), Participation(**part), **settings)
    return layer, layer.federation.roster, listening_to(layer)


def trained_keys(layer: Selection, grid: FakeGrid, numbers: range = range(1, 2)) -> list[list[str]]:
    """The clients that were asked in each round, as the grid knows them."""
    chosen = []
    for number in numbers:
        messages = list(
            layer.configure_train(number, to_record(small_model()), ConfigRecord(), grid)
        )
        chosen.append([grid.nodes[message.metadata.dst_node_id] for message in messages])
        layer.aggregate_train(number, grid.send_and_receive(messages))
    return chosen


def test_same_seed_same_clients_although_node_ids_differ() -> None:
    shuffled = list(np.random.default_rng(4).permutation(KEYS))
    first = trained_keys(selection(count=4, seed=3)[0], FakeGrid(KEYS), range(1, 6))
    second = trained_keys(
        selection(count=4, seed=3)[0], FakeGrid(shuffled, first_node=90_000), range(1, 6)
    )
    assert first == second
    assert all(len(set(chosen)) == 4 for chosen in first)
    other = trained_keys(selection(count=4, seed=4)[0], FakeGrid(KEYS), range(1, 6))
    assert first != other


def test_the_choice_does_not_depend_on_the_global_generator() -> None:
    random.seed(1)
    first = trained_keys(selection(count=4)[0], FakeGrid(KEYS), range(1, 4))
    random.seed(2)
    assert trained_keys(selection(count=4)[0], FakeGrid(KEYS), range(1, 4)) == first


def test_messages_come_in_the_order_of_keys() -> None:
    shuffled = ["9", "10", "camera", "2", "b"]
    layer, _, _ = selection(Everyone())
    assert trained_keys(layer, FakeGrid(shuffled, {"camera": failing, "b": failing})) == [
        ["2", "9", "10", "b", "camera"]
    ]


def test_evaluation_draws_the_same_clients_too() -> None:
    def evaluated(grid: FakeGrid) -> list[list[str]]:
        layer, _, _ = selection(count=10, fraction_evaluate=0.3, seed=5)
        one_round(layer, to_record(small_model()), grid)
        chosen = []
        for number in (1, 2, 3):
            arrays = to_record(small_model())
            messages = layer.configure_evaluate(number, arrays, ConfigRecord(), grid)
            chosen.append([grid.nodes[m.metadata.dst_node_id] for m in messages])
        return chosen

    assert evaluated(FakeGrid(KEYS)) == evaluated(FakeGrid(KEYS[::-1], first_node=7))
    assert all(len(set(chosen)) == 3 for chosen in evaluated(FakeGrid(KEYS)))


def test_evaluating_does_not_change_who_trains_next() -> None:
    plain, _, _ = selection(count=3, seed=1)
    both, _, _ = selection(count=3, seed=1, fraction_evaluate=0.5)
    grid = FakeGrid(KEYS)
    wanted = trained_keys(plain, FakeGrid(KEYS), range(1, 5))
    got = []
    for number in range(1, 5):
        got += trained_keys(both, grid, range(number, number + 1))
        list(both.configure_evaluate(number, to_record(small_model()), ConfigRecord(), grid))
    assert got == wanted


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"count": 4}, 4),
        ({"fraction": 0.3}, 3),
        ({"fraction": 1.0}, 10),
        ({"fraction": 0.01}, 1),
        ({"count": 10}, 10),
        ({"count": 4, "over_commit": 0.5}, 6),
        ({"count": 4, "over_commit": 0.3}, 6),
        ({"count": 8, "over_commit": 0.5}, 10),
        ({"count": 5, "over_commit": 0.2}, 6),
        ({"count": 5, "over_commit": 0.4}, 7),
    ],
)
def test_how_many_are_asked(settings: dict[str, Any], expected: int) -> None:
    (chosen,) = trained_keys(selection(**settings)[0], FakeGrid(KEYS))
    assert len(chosen) == expected


def test_over_commitment_asks_no_more_than_it_says() -> None:
    """Fifty and a tenth more are 55, although 50 * 1.1 is a little above 55 in binary."""
    layer, _, _ = selection(count=50, over_commit=0.1)
    (chosen,) = trained_keys(layer, FakeGrid([str(i) for i in range(80)]))
    assert len(chosen) == 55


def test_with_over_commitment_more_are_asked_where_clients_fail_often() -> None:
    federation, nodes = Federation(), list(range(1, 11))
    for node in nodes:
        federation.times.late(federation.key(node), 10.0, 1)  # 0.3 of them fail from now on
    asked = [
        Participation(over_commit=more).asked(federation, 4, nodes, 9) for more in (0.0, 0.1, 1.0)
    ]
    assert asked == [4, 6, 8]


def test_more_clients_than_there_are() -> None:
    layer, _, _ = selection(count=25)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    for name in ("forager", "flwr"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        chosen = trained_keys(layer, FakeGrid(KEYS), range(1, 4))
    finally:
        for name in ("forager", "flwr"):
            logging.getLogger(name).removeHandler(handler)
    assert chosen == [KEYS] * 3
    short = [
        line for line in said if "25 clients per round were asked for, 10 are available" in line
    ]
    assert len(short) == 1, "said once, not every round"


def test_nobody_is_there() -> None:
    layer, _, notes = selection(count=3, fraction_evaluate=1.0)
    arrays = to_record(small_model())
    assert list(layer.configure_train(1, arrays, ConfigRecord(), FakeGrid([]))) == []
    assert list(layer.configure_evaluate(1, arrays, ConfigRecord(), FakeGrid([]))) == []
    assert notes.events == []


def test_the_strategy_inside_sees_only_the_chosen() -> None:
    seen: list[list[int]] = []

    class Watching(FedAvg):
        def configure_train(self, server_round: Any, arrays: Any, config: Any, grid: Grid) -> Any:
            seen.append(list(grid.get_node_ids()))
            assert [node.node_id for node in grid.get_nodes()] == seen[-1]
            return super().configure_train(server_round, arrays, config, grid)

    inner = Watching(min_train_nodes=1, min_available_nodes=1)
    layer = Selection(inner, Uniform(), Participation(count=3))
    grid = FakeGrid(KEYS)
    chosen = trained_keys(layer, grid)
    assert [[grid.nodes[node] for node in nodes] for nodes in seen] == chosen


def test_a_selection_is_written_down() -> None:
    layer, _, notes = selection(count=3)
    (chosen,) = trained_keys(layer, FakeGrid(KEYS))
    (event,) = notes.of(Selected)
    assert event.chosen == chosen
    assert (event.round, event.phase, event.available) == (1, "train", 10)
    assert event.seconds >= 0


def test_everybody_is_asked_once_who_they_are() -> None:
    layer, _, _ = selection(count=3)
    grid = FakeGrid(KEYS)
    trained_keys(layer, grid, range(1, 6))
    asked = grid.of_kind(IDENTIFY)
    assert sorted(m.metadata.dst_node_id for m in asked) == sorted(grid.nodes)
    grid.nodes[777] = "77"
    trained_keys(layer, grid, range(6, 9))
    assert [m.metadata.dst_node_id for m in grid.of_kind(IDENTIFY)[10:]] == [777]


def test_those_who_do_not_say_who_they_are_take_part_and_are_not_asked_again() -> None:
    mute = dict.fromkeys(["2", "5"], never)
    layer, roster, _ = selection(count=10)
    grid = FakeGrid(KEYS, names=mute)
    (chosen,) = trained_keys(layer, grid)
    assert sorted(chosen) == KEYS
    # Their first reply told their names.
    assert [roster.key(node) for node in grid.nodes] == KEYS
    trained_keys(layer, grid, range(2, 4))
    assert len(grid.of_kind(IDENTIFY)) == 10


def test_those_who_never_say_their_name_go_by_a_digest_of_their_node() -> None:
    nobody = dict.fromkeys(KEYS, never)
    layer, roster, notes = selection(count=4)
    grid = FakeGrid(KEYS, names=nobody, first_node=500)
    (chosen,) = trained_keys(layer, grid)
    assert len(chosen) == 4
    assert roster.key(9999) == Roster.nameless(9999)
    assert set(notes.of(Selected)[0].chosen) <= set(map(Roster.nameless, grid.nodes))


def test_an_error_instead_of_a_name_is_no_name() -> None:
    layer, roster, _ = selection(count=10)
    grid = FakeGrid(KEYS, behaviours={"3": failing}, names={"3": failing})
    trained_keys(layer, grid)
    assert roster.key(503) == Roster.nameless(503)


class KeyedGrid(FakeGrid):
    """A grid whose nodes have public keys."""

    def get_nodes(self) -> Any:
        return [
            NodeInfo(node_id=n, public_key=b"key of " + k.encode()) for n, k in self.nodes.items()
        ]


def test_nameless_nodes_go_by_their_public_key() -> None:
    nobody = dict.fromkeys(KEYS, never)
    one, other = Roster(), Roster()
    one.identify(KeyedGrid(KEYS, names=nobody), 1.0)
    other.identify(KeyedGrid(KEYS[::-1], names=nobody, first_node=70), 1.0)
    names = [one.key(500 + i) for i in range(10)]
    assert names == [other.key(79 - i) for i in range(10)]
    assert len(set(names)) == 10
    assert all(name.startswith("key-") for name in names)


def test_a_name_beats_a_public_key() -> None:
    roster = Roster()
    roster.identify(KeyedGrid(KEYS), 1.0)
    assert [roster.key(500 + i) for i in range(10)] == KEYS


def test_mixed_versions_are_named_once_for_all_that_have_them(said: list[str]) -> None:
    def running(*texts: str) -> Any:
        def answer(message: Message, key: str, look: int) -> list[Message]:
            (reply,) = honest(message, key)
            reply.content["client"][VERSIONS] = list(texts)
            return [reply]

        return answer

    def ancient(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        del reply.content["client"][VERSIONS]
        return [reply]

    same = versions()[1:]
    old = {key: running("forager 0.0.1", *same) for key in KEYS[:7]}
    Roster().identify(FakeGrid(KEYS, names={**old, "8": ancient}), 1.0)
    mine = versions()[0].split()[1]
    assert len(said) == 2
    assert f"client 0, 1, 2, 3, 4 and others has forager 0.0.1 instead of {mine}. " in said[0]
    assert "client 8 does not say its version" in said[1]
    assert all("Update the device" in line for line in said)


@pytest.mark.parametrize("claim", ["", 5, b"bytes", "x" * 201, ["a"]])
def test_a_name_that_is_none_is_ignored(claim: Any) -> None:
    def odd(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        reply.content["client"]["key"] = claim
        return [reply]

    roster = Roster()
    roster.identify(FakeGrid(["1", "2"], names={"1": odd}), 1.0)
    assert [roster.key(500), roster.key(501)] == [Roster.nameless(500), "2"]


@pytest.mark.parametrize("selector", [Uniform, Everyone, RoundRobin])
def test_two_clients_of_one_name_do_not_break_anything(selector: type[ClientSelector]) -> None:
    layer, roster, _ = selection(selector(), count=3)
    grid = FakeGrid(["1", "1", "1", "2"])
    for chosen in trained_keys(layer, grid, range(1, 6)):
        assert len(chosen) == 3
    names = [roster.key(node) for node in roster.in_order(grid.nodes)]
    assert names == ["1", "2", *sorted(map(Roster.nameless, [501, 502]))]


def test_keys_that_differ_have_an_order_that_does_not_depend_on_node_ids() -> None:
    """Two spellings of one number are two clients."""
    names = ["7", "07", "\N{ARABIC-INDIC DIGIT SEVEN}", "camera"]
    one, other = Roster(), Roster()
    grid, reversed_grid = FakeGrid(names), FakeGrid(names[::-1])
    one.identify(grid, 1.0)
    other.identify(reversed_grid, 1.0)
    assert [one.key(n) for n in one.in_order(grid.nodes)] == [
        other.key(n) for n in other.in_order(reversed_grid.nodes)
    ]


def test_a_client_keeps_its_first_name() -> None:
    roster = Roster()
    grid = FakeGrid(["1", "2"])
    roster.identify(grid, 1.0)
    (liar,) = honest(Message(RecordDict(), dst_node_id=501, message_type=IDENTIFY), "1")
    roster.learn(liar)
    assert roster.key(501) == "2"


def calling_itself(name: str) -> Any:
    def claim(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        reply.content["client"]["key"] = name
        return [reply]

    return claim


def test_a_name_that_a_connected_client_has_is_not_given_twice() -> None:
    """Neither the victim's turn nor its record goes to who claims its name."""
    layer, roster, notes = selection(Everyone())
    grid = FakeGrid(["1", "2", "9"], names={"9": calling_itself("2")})
    thief = {"9": lambda message, key, look: [calling_itself("2")(message, "9", look)[0]]}
    grid.behaviours = thief
    trained_keys(layer, grid, range(1, 4))
    assert [roster.key(node) for node in grid.nodes] == ["1", "2", Roster.nameless(502)]
    assert notes.of(Selected)[-1].chosen == ["1", "2", Roster.nameless(502)]


def test_who_comes_while_others_train_evaluates_under_its_name() -> None:
    layer, _, notes = selection(Everyone(), fraction_evaluate=1.0)
    grid = FakeGrid(["1", "2"])
    trained_keys(layer, grid, range(1, 2))
    grid.nodes[700] = "3"
    list(layer.configure_evaluate(1, to_record(small_model()), ConfigRecord(), grid))
    assert notes.of(Selected)[-1].chosen == ["1", "2", "3"]


def test_nobody_takes_the_place_of_a_client_without_a_name() -> None:
    roster = Roster()
    grid = FakeGrid(["1", "2"], names={"1": never, "2": calling_itself(Roster.nameless(500))})
    roster.identify(grid, 1.0)
    assert [roster.key(500), roster.key(501)] == [Roster.nameless(500), Roster.nameless(501)]
    alone = Roster()
    alone.identify(FakeGrid(["2"], names={"2": calling_itself("node-1")}), 1.0)
    assert alone.key(500) == "node-1", "a name like any other where there is no such node"


def test_a_device_that_comes_back_as_another_node_gets_its_name_when_the_old_one_is_gone() -> None:
    """The SuperLink takes a minute to notice a crash; till then both are there."""
    roster = Roster()
    grid = FakeGrid(["1", "2"])
    roster.identify(grid, 1.0)
    grid.nodes[700] = "2"
    roster.identify(grid, 1.0)
    assert roster.key(700) == Roster.nameless(700)
    roster.identify(GridView(grid, [700]), 1.0)
    assert roster.key(700) == Roster.nameless(700), "the holder is out of view, not gone"
    del grid.nodes[501]
    roster.identify(grid, 1.0)
    assert roster.key(700) == "2"


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "a\u202eb"])
def test_names_that_would_spoil_a_log_are_none(name: str) -> None:
    roster = Roster()
    roster.identify(FakeGrid(["1"], names={"1": calling_itself(name)}), 1.0)
    assert roster.key(500) == Roster.nameless(500)


def test_what_a_client_says_of_its_age_changes_nothing() -> None:
    """Ages are the server's own count: who claims to have waited longest waits like the others."""
    layer, _, notes = selection(OldestFirst(), count=1)

    def claiming(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        for record in reply.content.metric_records.values():
            record["age"] = 1000 if key == "2" else 0
        return [reply]

    grid = FakeGrid(["1", "2", "3"], dict.fromkeys("123", claiming))
    chosen = [key for (key,) in trained_keys(layer, grid, range(1, 7))]
    assert sorted(chosen[:3]) == sorted(chosen[3:]) == ["1", "2", "3"]
    assert max(max(event.ages) for event in notes.of(Selected)) <= 2


def test_state_continues_the_choice() -> None:
    whole, _, _ = selection(RoundRobin(), count=3, fraction_evaluate=0.5, seed=8)
    grid = FakeGrid(KEYS)
    trained_keys(whole, grid, range(1, 4))
    state = whole.own_state()
    rest = trained_keys(whole, grid, range(4, 8))
    fresh, _, _ = selection(RoundRobin(), count=3, fraction_evaluate=0.5, seed=0)
    fresh.load_own_state(state)
    assert trained_keys(fresh, FakeGrid(KEYS), range(4, 8)) == rest


def test_clients_that_leave_and_join_between_rounds() -> None:
    layer, _, _ = selection(RoundRobin(), fraction=0.5)
    grid = FakeGrid(KEYS)
    trained_keys(layer, grid)
    del grid.nodes[503], grid.nodes[504]
    grid.nodes[900] = "90"
    for chosen in trained_keys(layer, grid, range(2, 8)):
        assert set(chosen) <= set(grid.nodes.values())
        assert len(chosen) == 4


def test_a_selector_gets_keys_in_order() -> None:
    seen: list[list[str]] = []

    class Watching(ClientSelector):
        def select(self, candidates: Candidates, count: int, rng: Any) -> Any:
            seen.append(list(candidates.keys))
            return np.arange(count)

    trained_keys(selection(Watching(), count=2)[0], FakeGrid(["10", "9", "2"]))
    assert seen == [["2", "9", "10"]]


def test_whoever_is_chosen_the_mean_is_theirs() -> None:
    layer, _, _ = selection(count=4, seed=2)
    grid = FakeGrid(KEYS)
    got = rounds(layer, to_record(small_model()), grid, range(1, 2))
    (chosen,) = trained_keys(selection(count=4, seed=2)[0], FakeGrid(KEYS))
    everyone, _, _ = selection(Everyone())
    wanted, _ = one_round(everyone, to_record(small_model()), FakeGrid(chosen))
    assert_same(got, wanted, rtol=1e-6)


def test_a_view_shows_its_nodes_and_hands_on_the_rest() -> None:
    grid = FakeGrid(KEYS)
    view = GridView(grid, [503, 501])
    assert list(view.get_node_ids()) == [503, 501]
    assert {node.node_id for node in view.get_nodes()} == {501, 503}
    assert view.run is grid.run
    message = view.create_message(RecordDict(), IDENTIFY, 503, "")
    (reply,) = view.send_and_receive([message])
    assert reply.metadata.src_node_id == 503
    ids = list(view.push_messages([view.create_message(RecordDict(), IDENTIFY, 501, "")]))
    assert len(list(view.pull_messages(ids))) == 1


def test_a_view_does_not_change_when_a_node_leaves() -> None:
    grid = FakeGrid(KEYS)
    view = GridView(grid, [503, 501])
    del grid.nodes[503]
    assert list(view.get_node_ids()) == [503, 501]


def test_a_wrapper_hands_everything_on() -> None:
    grid = FakeGrid(KEYS)
    wrapper = GridWrapper(grid)
    assert list(wrapper.get_node_ids()) == list(grid.get_node_ids())
    assert len(list(wrapper.get_nodes())) == 10
    run = grid.run
    wrapper.set_run(run)
    assert wrapper.run is run


class First(ClientSelector):
    """Always those that come first, after a look at what it is said to need."""

    def __init__(self, *needs: str) -> None:
        self.needs = frozenset(needs)

    def select(self, candidates: Candidates, count: int, rng: Any) -> Any:
        return np.arange(min(count, len(candidates)))


def test_who_rests_is_not_chosen_whatever_share_takes_part() -> None:
    layer, _, _ = selection(First(), count=3)
    grid = FakeGrid(KEYS)
    layer.federation.nodes(grid)
    for key in ("0", "2"):
        layer.federation.heard(key, 1, answered=False)
    assert trained_keys(layer, grid, range(2, 4)) == [["1", "3", "4"], ["0", "1", "2"]]
    everyone, _, _ = selection(First(), count=10)
    everyone.federation.heard("0", 1, answered=False)
    assert trained_keys(everyone, FakeGrid(KEYS), range(2, 4)) == [KEYS[1:], KEYS]


@pytest.mark.parametrize("at_least", [1, 9, 10])
def test_who_rests_is_asked_where_too_few_are_left(at_least: int) -> None:
    layer, _, _ = selection(First(), fraction=1.0, at_least=at_least)
    layer.federation.heard("0", 1, answered=False)
    (asked,) = trained_keys(layer, FakeGrid(KEYS), range(2, 3))
    assert asked == (KEYS if at_least == 10 else KEYS[1:])
    for key in KEYS:
        layer.federation.heard(key, 2, answered=False)
    assert trained_keys(layer, FakeGrid(KEYS), range(3, 4)) == [KEYS], "rather than nobody"


def test_who_rests_does_not_evaluate() -> None:
    layer, _, notes = selection(Everyone(), fraction_evaluate=1.0)
    grid = FakeGrid(KEYS)
    layer.federation.nodes(grid)
    layer.federation.heard("0", 1, answered=False)
    list(layer.configure_evaluate(2, to_record(small_model()), ConfigRecord(), grid))
    assert notes.of(Selected)[-1].chosen == KEYS[1:]


def test_only_those_allowed_are_chosen() -> None:
    layer, _, notes = selection(First(), count=3)
    layer.federation.admission = Admission(allowed=["4", "7"])
    assert trained_keys(layer, FakeGrid(KEYS), range(1, 3)) == [["4", "7"]] * 2
    assert [event.available for event in notes.of(Selected)] == [2, 2]


@pytest.mark.parametrize(("at_most", "bound"), [(2.0, 2.0), (3.0, 3.0), (0.0, None)])
def test_nobody_is_chosen_many_times_as_often_as_the_average(
    at_most: float, bound: float | None
) -> None:
    layer, _, _ = selection(First(), count=1, at_most=at_most)
    chosen = [key for (key,) in trained_keys(layer, FakeGrid(KEYS), range(1, 61))]
    most = max(chosen.count(key) for key in KEYS)
    if bound is None:
        assert most == 60
    else:
        assert most <= bound * (1 + 60 / len(KEYS)) + 1
        assert len(set(chosen)) > 1


def test_the_cap_lies_at_so_many_times_one_more_than_the_average() -> None:
    layer, _, _ = selection(First(), count=1, at_most=2.0)
    chosen = [key for (key,) in trained_keys(layer, FakeGrid(KEYS[:4]), range(1, 11))]
    # After 4 rounds the average is 1, and the first client has reached 2 * (1 + 1).
    assert chosen == ["0"] * 4 + ["1", "0", "1", "0", "1", "0"]


def test_how_often_clients_were_chosen_survives_a_save() -> None:
    whole, _, _ = selection(First(), count=1, at_most=2.0)
    grid = FakeGrid(KEYS)
    trained_keys(whole, grid, range(1, 21))
    fresh, _, _ = selection(First(), count=1, at_most=2.0)
    fresh.load_own_state(whole.own_state())
    fresh.federation.load_state_dict(whole.federation.state_dict())
    rest = trained_keys(whole, grid, range(21, 41))
    assert trained_keys(fresh, FakeGrid(KEYS), range(21, 41)) == rest


def test_the_last_change_of_the_model_outlives_a_round_without_a_mean() -> None:
    layer, _, _ = selection(First(SIMILARITY), count=10)
    grid = FakeGrid(KEYS)
    trained_keys(layer, grid)
    change = layer.pools.update
    assert change is not None
    grid.behaviours = dict.fromkeys(KEYS, failing)
    trained_keys(layer, grid, range(2, 3))
    assert layer.pools.update is change
    plain, _, _ = selection(First(), count=10)
    trained_keys(plain, FakeGrid(KEYS))
    assert plain.pools.update is None, "a state file would hold it for nobody"


def with_loss(loss: float) -> Any:
    """A client that answers questions with such a loss, and trains."""

    def behave(message: Message, key: str, look: int) -> list[Message]:
        if message.metadata.message_type == SUMMARY:
            return [answer(message, {METRICS: MetricRecord({"loss": loss})})]
        return honest(message, key)

    return behave


def test_sizes_are_learnt_from_training_replies() -> None:
    layer, _, _ = selection(PowerOfChoice(), count=3)
    grid = FakeGrid(KEYS, {key: with_loss(float(key)) for key in KEYS})
    trained = {key for keys in trained_keys(layer, grid, range(1, 4)) for key in keys}
    sizes = layer.memory.values(KEYS, NUM_EXAMPLES)
    expected = [num_examples(key) if key in trained else np.nan for key in KEYS]
    np.testing.assert_array_equal(sizes, expected)


@pytest.mark.parametrize("told", [7.5, None, -1.0, [3.0]])
def test_utility_is_taken_from_replies_and_worth_nothing_if_it_is_not_told(told: Any) -> None:
    def tell(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        if told is not None and message.metadata.message_type == "train":
            records[METRICS] = MetricRecord({**records[METRICS], UTILITY: told})
        return [answer(message, records)]

    layer, _, notes = selection(Oort(), count=2)
    (first,) = trained_keys(layer, FakeGrid(KEYS, dict.fromkeys(KEYS, tell)))
    expected = {7.5: [7.5, 7.5], None: [0.0, 0.0]}.get(told if told != [3.0] else -1.0)
    if expected is None:
        assert [event.client for event in notes.of(Quarantined)] == first
        expected = [0.0, 0.0]
    np.testing.assert_array_equal(layer.memory.values(first, UTILITY), expected)


def mute(message: Message, key: str, look: int) -> list[Message]:
    return [] if message.metadata.message_type == SUMMARY else honest(message, key)


def test_where_too_few_answer_the_oldest_fill_up() -> None:
    layer, _, notes = selection(First("loss"), count=4)
    grid = FakeGrid(KEYS, {**dict.fromkeys(KEYS, mute), "5": with_loss(1.0), "8": with_loss(2.0)})
    (first,) = trained_keys(layer, grid)
    assert len(first) == 4
    assert {"5", "8"} <= set(first)
    assert notes.of(Quarantined) == []


def test_where_nobody_answers_the_oldest_train(said: list[str]) -> None:
    layer, _, _ = selection(First("loss"), count=3)
    chosen = trained_keys(layer, FakeGrid(KEYS, dict.fromkeys(KEYS, mute)), range(1, 3))
    assert [len(keys) for keys in chosen] == [3, 3]
    assert "round 1: nobody answered; the oldest train" in said


@pytest.mark.parametrize("lie", [-1.0, float("nan"), float("inf")])
def test_an_answer_that_makes_no_sense_is_set_aside(lie: float) -> None:
    layer, _, notes = selection(First("loss"), count=9)
    grid = FakeGrid(KEYS, {**dict.fromkeys(KEYS, with_loss(0.5)), "0": with_loss(lie)})
    (chosen,) = trained_keys(layer, grid)
    assert chosen == KEYS[1:]
    (event,) = notes.of(Quarantined)
    assert (event.round, event.client) == (1, "0")
    assert "loss" in event.reason
    assert dict(layer.federation.strikes) == {"0": 1}


def test_what_all_claim_in_a_round_is_judged_by_what_was_usual_before_it() -> None:
    claims = CheckedClaims(Federation(), frozenset([LOSS]), Questions())
    usable = []
    for number, loss in enumerate((1.0, 1000.0, 1000.0)):
        claims.settle()
        told: dict[int, Any] = dict.fromkeys(range(1, 11), loss)
        usable.append(len(claims.take_answers(number, LOSS, told)))
    assert usable == [10, 0, 10]


def test_many_rounds_without_anybody_fail_if_that_is_wanted() -> None:
    """Flower's own loop would go on to the end without a word."""
    layer, _, _ = selection(count=3, empty_rounds=3)
    arrays, nobody = to_record(small_model()), FakeGrid([])
    for number in (1, 2):
        assert list(layer.configure_train(number, arrays, ConfigRecord(), nobody)) == []
    trained_keys(layer, FakeGrid(KEYS), range(3, 4))
    for number in (4, 5):
        assert list(layer.configure_train(number, arrays, ConfigRecord(), nobody)) == []
    with pytest.raises(NobodyTrained, match="3 rounds in a row trained nobody"):
        layer.configure_train(6, arrays, ConfigRecord(), nobody)


@pytest.mark.parametrize("lie", [[1.0], [1.0] * 9, [], None], ids=str)
def test_a_histogram_that_is_missing_or_of_another_length_stops_nobody_else(lie: Any) -> None:
    def counted(message: Message, key: str, look: int) -> list[Message]:
        if message.metadata.message_type != SUMMARY:
            return honest(message, key)
        counts = lie if key == "5" else [1.0 + int(key) % 3, 2.0, 3.0]
        told = {} if counts is None else {"histogram": counts}
        return [answer(message, {METRICS: MetricRecord(told)})]

    layer, _, notes = selection(ClusterOracle(), count=4)
    chosen = trained_keys(layer, FakeGrid(KEYS, dict.fromkeys(KEYS, counted)), range(1, 4))
    assert [len(keys) for keys in chosen] == [4, 4, 4]
    assert {event.client for event in notes.of(Quarantined)} == {"5"}


@pytest.mark.parametrize("lie", [[1.0], [1.0] * 9, [], [1e300, 1.0, 1.0]], ids=str)
def test_the_first_to_answer_does_not_say_how_long_a_histogram_is(lie: list[float]) -> None:
    def counted(message: Message, key: str, look: int) -> list[Message]:
        if message.metadata.message_type != SUMMARY:
            return honest(message, key)
        counts = lie if key == KEYS[0] else [1.0 + int(key) % 3, 2.0, 3.0]
        return [answer(message, {METRICS: MetricRecord({"histogram": counts})})]

    layer, _, notes = selection(ClusterOracle(), count=4, questions=Questions(labels=3))
    chosen = trained_keys(layer, FakeGrid(KEYS, dict.fromkeys(KEYS, counted)), range(1, 4))
    assert [len(keys) for keys in chosen] == [4, 4, 4]
    assert {event.client for event in notes.of(Quarantined)} == {KEYS[0]}
