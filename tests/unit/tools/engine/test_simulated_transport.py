"""Answers on their way on a simulated clock: each arrives when its time has come, and once."""

import math
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from forager.core.config import default_config
from forager.core.storage import tree
from forager.core.wire.arrays import to_record
from forager.core.wire.delivery import Delivery
from forager.core.wire.flower_private import TaskIdentity
from forager.core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES, SECONDS
from forager.core.wire.replies import Replies
from forager.core.wire.requests import Requests
from forager.tools.engine import simulated_transport
from forager.tools.engine.availability import Availability
from forager.tools.engine.simulated_transport import (
    DeviceSpeeds,
    SimulatedDevices,
    SimulatedTransport,
)

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
FIRST = 1000
CONFIG = {**default_config(), "local-epochs": 1}


def devices(*seconds: float, **more: Any) -> SimulatedDevices:
    """Clients that take this long for one sample, and no time for bytes."""
    return SimulatedDevices(len(seconds), DeviceSpeeds(seconds, [1e300] * len(seconds)), **more)


def transport(*seconds: float, **more: Any) -> SimulatedTransport:
    return SimulatedTransport(devices(*seconds, **more), FIRST, CONFIG)


def sent(names: str, kind: str = "train") -> Requests:
    """Messages to the first clients, by their ids."""
    record = to_record({"w": np.zeros(2, np.float32)})
    first = Message(RecordDict({ARRAYS: record}), dst_node_id=FIRST, message_type=kind)
    requests = Requests(first, [FIRST + i for i in range(len(names))])
    requests.ids = list(names)
    return requests


def answers(requests: Requests) -> Delivery:
    """Every client's answer, after a training on one sample."""
    many = len(requests)
    metrics = {NUM_EXAMPLES: [1] * many, SECONDS: [0.0] * many}
    stack = {"w": np.arange(2 * many, dtype=np.float32).reshape(many, 2)}
    nodes, ids = requests.nodes, requests.ids
    table = Replies(nodes, ids, [""] * many, metrics, {ARRAYS: stack}, envelope=requests.message)
    return Delivery([table], [])


def carry(carrier: SimulatedTransport, names: str) -> None:
    requests = sent(names)
    carrier.carry(requests, answers(requests))


def ids(arrived: Delivery) -> list[str]:
    return [name for table in arrived.tables for name in table.asked]


def test_answers_arrive_in_the_order_of_their_times_and_once() -> None:
    carrier = transport(3.0, 1.0, 2.0)
    carry(carrier, "abc")
    clock = carrier.clock
    assert ids(carrier.arrived("abc")) == []
    seen = []
    while carrier.next_arrival() is not None:
        clock.wait(math.inf)
        seen.append((clock.now(), ids(carrier.arrived("abc"))))
    assert seen == [(1.0, ["b"]), (2.0, ["c"]), (3.0, ["a"])]
    assert ids(carrier.arrived("abc")) == []


def test_a_reply_says_how_long_it_took() -> None:
    carrier = transport(3.0, 1.0)
    carry(carrier, "ab")
    carrier.clock.wait(1.0)
    carrier.clock.wait(9.0)
    (first, second) = carrier.arrived("ab").tables
    assert (first.metrics[SECONDS], second.metrics[SECONDS]) == ([1.0], [3.0])
    np.testing.assert_array_equal(first.arrays["w"], [[2.0, 3.0]])


def test_waiting_ends_with_the_next_answer_or_with_ones_patience() -> None:
    carrier = transport(5.0)
    carry(carrier, "a")
    clock = carrier.clock
    clock.wait(2.0)
    assert (clock.now(), clock.simulated_since(0.5)) == (2.0, 1.5)
    clock.wait(60.0)
    assert clock.now() == 5.0
    clock.wait(math.inf)
    assert clock.now() == 5.0, "nothing comes any more: no time passes"
    clock.wait(-1.0)
    assert clock.now() == 5.0


def test_what_nobody_asks_for_waits_and_the_oldest_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulated_transport, "_MOST_UNREAD", 2)
    carrier = transport(1.0, 2.0, 3.0, 50.0)
    carry(carrier, "abcd")
    carrier.devices.clock = 10.0
    assert ids(carrier.arrived("")) == []
    assert carrier.next_arrival() == 50.0
    assert ids(carrier.arrived("abcd")) == ["b", "c"], "what has not arrived yet is never dropped"
    carrier.devices.clock = 50.0
    assert ids(carrier.arrived("abcd")) == ["d"]


def test_who_leaves_before_it_is_done_answers_with_an_error_when_it_leaves() -> None:
    online = Availability(2, np.array([0, 1]), np.array([0.0, 0.0]), np.array([4.0, 99.0]), 100.0)
    carrier = transport(5.0, 5.0, availability=online)
    carry(carrier, "ab")
    carrier.clock.wait(math.inf)
    assert carrier.clock.now() == 4.0
    (error,) = carrier.arrived("ab").errors
    assert error.error.reason == "left before it was done"
    assert error.metadata.reply_to_message_id == "a"
    carrier.clock.wait(math.inf)
    assert ids(carrier.arrived("ab")) == ["b"]


def test_an_error_takes_no_training() -> None:
    carrier, requests = transport(5.0), sent("a")
    broken = Message(Error(2, "it broke"), reply_to=requests[0])
    carrier.carry(requests, Delivery([], [broken]))
    carrier.clock.wait(1e-9)
    assert carrier.arrived("a").errors == [broken]


def test_what_is_on_its_way_survives_a_checkpoint() -> None:
    carrier = transport(3.0, 1.0, 2.0)
    carry(carrier, "abc")
    carrier.clock.wait(math.inf)
    carrier.arrived("b")
    waiting = sent("xy")
    pending = {each: (waiting, row) for row, each in enumerate(waiting.ids)}
    state = tree.from_bytes(tree.to_bytes(carrier.state_dict(pending), "test"), "test")
    fresh = transport(3.0, 1.0, 2.0)
    carry(fresh, "z")
    kept = fresh.load_state_dict(state)
    assert [(each, row) for each, (_, row) in kept.items()] == [("x", 0), ("y", 1)]
    assert [m.metadata.message_id for m, _ in [(t[row], row) for t, row in kept.values()]] == [
        *"xy"
    ]
    for each in (carrier, fresh):
        seen = []
        while each.next_arrival() is not None:
            each.clock.wait(math.inf)
            (table,) = each.arrived("abcz").tables
            took, weights = table.metrics[SECONDS], table.stack(ARRAYS)["w"].tolist()
            seen.append((each.clock.now(), table.asked, table.nodes, took, weights))
        assert seen == [
            (2.0, ["c"], [FIRST + 2], [2.0], [[4.0, 5.0]]),
            (3.0, ["a"], [FIRST], [3.0], [[0.0, 1.0]]),
        ]


def test_an_error_on_its_way_survives_too() -> None:
    online = Availability(1, np.array([0]), np.array([0.0]), np.array([4.0]), 100.0)
    carrier = transport(5.0, availability=online)
    carry(carrier, "a")
    fresh = transport(5.0, availability=online)
    assert fresh.load_state_dict(carrier.state_dict({})) == {}
    fresh.clock.wait(math.inf)
    (error,) = fresh.arrived("a").errors
    assert error.error.reason == "left before it was done"


@pytest.mark.parametrize(
    ("kind", "seconds"), [("train", 2.0), ("query.losses", 1.0), ("query.summary", 0.0)]
)
def test_what_a_question_takes_depends_on_what_it_asks(kind: str, seconds: float) -> None:
    carrier, requests = transport(1.0), sent("a", kind)
    requests.put("config", ConfigRecord({"wants": "histogram"}))
    reply = Message(
        RecordDict({METRICS: MetricRecord({NUM_EXAMPLES: 2 if kind == "train" else 3})}),
        reply_to=requests[0],
    )
    if kind == "train":
        reply.content[ARRAYS] = to_record({"w": np.zeros(2, np.float32)})
    carrier.carry(requests, Delivery.of([reply]))
    assert carrier.next_arrival() == pytest.approx(seconds)
