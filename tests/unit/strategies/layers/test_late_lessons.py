"""What layers learn from a reply that came after its round."""

from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, honest_records, inside, listening_to, small_model
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from forager.core.config import read_config
from forager.core.log.events import Quarantined
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS, METRICS, SPARSE, UTILITY
from forager.core.wire.replies import Replies
from forager.selectors.cohorts.split import SplitRule
from forager.selectors.cohorts.split_testing import SplitTest
from forager.strategies.build import build_strategy
from forager.strategies.federation.client_memory import ResponseTimes
from forager.strategies.federation.ledger import Assignment
from forager.strategies.layers.base import Layer
from forager.strategies.layers.cohorts import Cohorts
from forager.strategies.layers.selection import Selection

KEYS = [str(i) for i in range(6)]
START = to_record(small_model())


def reporting(message: Message, key: str, look: int = 0) -> list[Message]:
    """Answer as an honest client that knows its utility."""
    return [reply_to(message, key, {UTILITY: 5.0})]


def reply_to(message: Message, key: str, metrics: dict[str, float]) -> Message:
    records = honest_records(message, key)
    records[METRICS] = MetricRecord({**records[METRICS], **metrics})
    return Message(RecordDict(records), reply_to=message)


def stack(**keys: Any) -> tuple[Layer, FakeGrid]:
    given = {"num-clients": 6, "clients-per-round": 6}
    layer = build_strategy(
        read_config({**given, **{k.replace("_", "-"): v for k, v in keys.items()}})
    )
    return layer, FakeGrid(KEYS, dict.fromkeys(KEYS, reporting))


def played(
    layer: Layer, grid: FakeGrid, server_round: int, *, without: str = "5"
) -> tuple[Message, Assignment]:
    """Play a round without one client; return what client 5 was asked."""
    messages = list(layer.configure_train(server_round, START, ConfigRecord(), grid))
    (message,) = [m for m in messages if grid.nodes[m.metadata.dst_node_id] == "5"]
    assignment = layer.federation.ledger.of_node(message.metadata.dst_node_id)
    assert assignment is not None
    replies = grid.send_and_receive(messages)
    layer.aggregate_train(
        server_round, [r for r in replies if grid.nodes[r.metadata.src_node_id] != without]
    )
    return message, assignment


def late_of(asked: tuple[Message, Assignment], **metrics: float) -> Replies:
    """The reply of client 5, after its round."""
    message, assignment = asked
    return late(reply_to(message, "5", metrics), assignment)


def late(reply: Message, assignment: Assignment) -> Replies:
    replies = Replies.of(reply)
    replies.assignments = [assignment]
    return replies


def test_an_observation_enters_with_its_round_and_never_replaces_a_newer_one() -> None:
    layer, grid = stack(client_selector="oort")
    memory = inside(layer, Selection).memory
    first = played(layer, grid, 1)
    second = played(layer, grid, 2)
    layer.hear(3, late_of(second, **{UTILITY: 7.0}))
    assert (memory.values(["5"], UTILITY).tolist(), memory.told_in("5", UTILITY)) == ([7.0], 2)
    layer.hear(3, late_of(first, **{UTILITY: 99.0}))
    assert (memory.values(["5"], UTILITY).tolist(), memory.told_in("5", UTILITY)) == ([7.0], 2)
    layer.hear(3, late_of(second, **{UTILITY: 99.0}))
    assert memory.values(["5"], UTILITY).tolist() == [7.0], "a round has one answer"
    played(layer, grid, 3, without="0")
    assert memory.told_in("5", UTILITY) == 3


def test_ages_and_picks_stay_as_they_are() -> None:
    layer, grid = stack(client_selector="oort")
    memory = inside(layer, Selection).memory
    asked = played(layer, grid, 1)
    before = (memory.ages(KEYS), memory.picked(KEYS).tolist())
    layer.hear(2, late_of(asked, **{UTILITY: 7.0}))
    assert (memory.ages(KEYS), memory.picked(KEYS).tolist()) == before


def test_a_utility_that_makes_no_sense_is_worth_nothing_and_set_aside() -> None:
    layer, grid = stack(client_selector="oort")
    notes = listening_to(layer)
    memory = inside(layer, Selection).memory
    asked = played(layer, grid, 1)
    layer.hear(4, late_of(asked, **{UTILITY: -1.0}))
    assert memory.values(["5"], UTILITY).tolist() == [0.0]
    assert [(e.round, e.client) for e in notes.of(Quarantined)] == [(4, "5")]


def test_a_sparse_reply_is_decoded_by_the_model_it_was_made_from() -> None:
    layer, grid = stack(uplink="top-k")
    tardy = late_of(played(layer, grid, 1))
    assert tardy.has(SPARSE)
    layer.hear(3, tardy)
    after, before = tardy.arrays, small_model()
    changed = sum(int((after[name][0] != before[name]).sum()) for name in before)
    assert 0 < changed <= 3


def test_updates_that_are_too_large_are_refused() -> None:
    layer, grid = stack()
    notes = listening_to(layer)
    message, assignment = played(layer, grid, 1)
    reply = reply_to(message, "5", {})
    reply.content[ARRAYS] = to_record(
        {name: (1e6 * array).astype(array.dtype) for name, array in small_model().items()}
    )
    layer.hear(2, late(reply, assignment))
    (event,) = notes.of(Quarantined)
    assert (event.round, event.client) == (2, "5")
    assert event.reason.startswith("late: update of norm")


def test_a_measured_time_replaces_guesses_and_never_a_newer_measurement() -> None:
    times = ResponseTimes(longest=10.0)
    times.late("a", 10.0, 1)
    times.late("a", 10.0, 3)  # asked again before its reply has come
    times.came_late("a", 12.0, 1)
    assert times.seconds(["a"]).tolist() == [12.0]
    times.late("a", 10.0, 6)
    assert times.seconds(["a"]) > 12.0
    fresh = ResponseTimes(longest=10.0)
    fresh.load_state_dict(times.state_dict())
    fresh.came_late("a", 12.0, 3)
    assert fresh.seconds(["a"]).tolist() == pytest.approx([12.0])
    fresh.came_late("a", 99.0, 1)
    assert fresh.seconds(["a"]).tolist() == pytest.approx([12.0])
    assert fresh.rests("a", 10)
    fresh.replied("a", 12.0, 11)
    fresh.cut_off("a", 30.0)
    assert fresh.seconds(["a"]).tolist() == [30.0]
    fresh.came_late("a", 22.0, 12)
    assert fresh.seconds(["a"]).tolist() == pytest.approx([12.0 + 0.3 * 10.0])
    assert not fresh.rests("a", 12)


def two_ways(keys: list[str], seed: int = 0) -> Any:
    ways = np.eye(8)[[int(key) % 2 for key in keys]]
    return ways + 0.1 * np.random.default_rng(seed).normal(size=ways.shape)


def auxo(**settings: Any) -> SplitTest:
    rule = SplitRule(first_round=0, rounds=1, participants=1)
    return SplitTest(rule=rule, asks=False, **settings)


def test_auxo_counts_a_late_client_in_the_round_it_belongs_to() -> None:
    keys = [str(i) for i in range(12)]
    prompt, tardy = auxo(), auxo()
    prompt.observe("0", keys, two_ways(keys), population=16, round=3)
    tardy.observe("0", keys[:10], two_ways(keys)[:10], population=16, round=3)
    for row in (10, 11):
        tardy.observe_late("0", keys[row], two_ways(keys)[row], round=3)
        tardy.observe_late("0", keys[row], -two_ways(keys)[row], round=3)  # seen in that round
    found = [each._leaves["0"].evidence.differences() for each in (prompt, tardy)]
    assert found[0].keys == found[1].keys
    np.testing.assert_allclose(found[0].means, found[1].means, atol=1e-6)
    assert (found[0].degrees, found[1].degrees) == (0, 0)


def test_a_client_that_is_always_late_finds_its_cohort() -> None:
    keys, cohorts = [str(i) for i in range(12)], auxo()
    children = cohorts.observe("0", keys, two_ways(keys), population=12, round=1).children
    assert children == ["0.0", "0.1"]
    cohorts.observe_late("0", "13", two_ways(["13"])[0], round=1)  # that cohort is gone
    assert cohorts.home("13") is None
    for leaf in children:
        mine = [key for key in keys if cohorts.home(key) == leaf]
        cohorts.observe(leaf, mine, two_ways(mine, seed=2), population=13, round=2)
        cohorts.observe_late(leaf, "13", two_ways(["13"])[0], round=2)
    assert cohorts.home("13") == cohorts.home("1")


def test_a_cohort_that_is_gone_learns_nothing() -> None:
    layer, grid = stack(cohorts="split-test")
    cohorts = inside(layer, Cohorts)
    message, assignment = played(layer, grid, 1)
    evidence = cohorts.rule.core._leaves["0"].evidence  # type: ignore[attr-defined]
    assert evidence.of_round(1)[0] == KEYS[:5]
    gone = Assignment(505, "train", 1, "0.7", START)
    layer.hear(2, late_of((message, gone)))
    assert evidence.of_round(1)[0] == KEYS[:5]
    layer.hear(2, late_of((message, assignment)))
    assert evidence.of_round(1)[0] == KEYS
    assert layer.federation.ledger.of_node(505).cohort == "0"  # type: ignore[union-attr]
