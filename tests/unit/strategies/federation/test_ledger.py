"""Everything under way, in one place: who is busy, late, expected, or was sent which model."""

from typing import Any

import numpy as np
import pytest
from fakes import assert_same
from flwr.app import ArrayRecord, Message, RecordDict
from forager.core.storage import tree
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS
from forager.core.wire.replies import Replies
from forager.core.wire.requests import Requests
from forager.strategies.federation.ledger import Assignment, Ledger

NODES = [7, 8, 9]


def model(size: int = 2) -> ArrayRecord:
    return to_record({"w": np.zeros(size, dtype=np.float32)})


def asked(
    names: str = "abc", kind: str = "train", nodes: Any = NODES, record: ArrayRecord | None = None
) -> Requests:
    content = RecordDict({} if record is None else {ARRAYS: record})
    table = Requests(Message(content, dst_node_id=1, message_type=kind), list(nodes))
    table.ids = list(names)
    return table


def opened(ledger: Ledger, table: Requests, server_round: int = 1, **times: float) -> Ledger:
    ledger.assign(table, server_round)
    ledger.open(table, server_round, **{"now": 0.0, "expires": 60.0, **times})
    return ledger


def test_who_trains_is_busy_until_it_has_answered_or_was_given_up() -> None:
    ledger = opened(Ledger(), asked())
    assert ledger.busy == {7, 8, 9}
    assert ledger.awaited("train") == ["a", "b", "c"]
    found = ledger.answered("a")
    assert found is not None
    assert (found.node, found.round, found.sent, found.expires) == (7, 1, 0.0, 60.0)
    assert ledger.answered("a") is None, "there is no second reply"
    assert [each.node for each in ledger.give_up({"c"})] == [9]
    assert ledger.busy == {8}
    assert (ledger.is_late("c"), ledger.is_late("b"), ledger.is_late("a")) == (True, False, False)
    assert [each is not None for each in map(ledger.peek, "abc")] == [False, True, True]


def test_only_training_makes_busy_and_may_come_late() -> None:
    ledger = opened(Ledger(), asked(kind="evaluate"))
    assert ledger.busy == set()
    assert len(ledger.give_up("abc")) == 3
    assert ledger.expected() == []


def test_the_newest_message_to_a_client_is_known_while_it_is_under_way() -> None:
    ledger = opened(Ledger(), asked("a", nodes=[7]), 1)
    ledger.give_up("a")
    opened(ledger, asked("bc", nodes=[7, 8]), 2)
    newest = ledger.newest(7)
    assert newest is not None
    assert newest.id == "b"
    ledger.answered("b")
    newest = ledger.newest(7)
    assert newest is not None
    assert newest.id == "a"
    ledger.answered("a")
    assert ledger.newest(7) is None


def test_what_was_not_delivered_is_not_awaited() -> None:
    table = asked()
    table.ids = ["a", "", "c"]
    assert opened(Ledger(), table).awaited("train") == ["a", "c"]


def test_what_is_overdue_is_known_by_its_time() -> None:
    ledger = opened(Ledger(), asked("ab", nodes=[7, 8]))
    opened(ledger, asked("c", nodes=[9]), now=30.0, expires=90.0)
    assert ledger.overdue("train", 60.0) == []
    assert ledger.overdue("train", 60.5) == ["a", "b"]
    assert ledger.overdue("evaluate", 1e9) == []


def test_a_late_reply_is_expected_as_long_as_it_can_come() -> None:
    ledger = opened(Ledger(), asked())
    ledger.give_up(["a", "b"])
    ledger.forget_expired(60.0)
    assert ledger.expected() == ["a", "b"]
    found = ledger.answered("a")
    assert found is not None
    assert found.round == 1
    ledger.forget_expired(60.1)
    assert ledger.expected() == []
    assert ledger.peek("b") is None, "what has expired is forgotten"


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_what_is_given_up_keeps_the_order_it_was_sent_in(order: str) -> None:
    ledger = opened(Ledger(), asked())
    assert [each.node for each in ledger.give_up(iter(order))] == NODES
    assert ledger.expected() == ["a", "b", "c"]


def test_what_a_client_was_sent_is_known_until_the_next_occasion_unless_it_still_trains() -> None:
    ledger, first, second = Ledger(), model(), model()
    table = asked(record=first)
    ledger.assign(table, 1, "0.1")
    table.ids = ["a", "", ""]
    ledger.open(table, 1, now=0.0, expires=60.0)
    ledger.assign(asked(nodes=[9], record=second), 2)
    known = [ledger.of_node(node) for node in NODES]
    assert known[1] is None
    assert [(each.model is first, each.round, each.cohort) for each in known if each] == [
        (True, 1, "0.1"),
        (False, 2, None),
    ]


def test_a_question_in_between_does_not_take_the_place_of_training() -> None:
    ledger = Ledger()
    ledger.assign(asked(record=model()), 1, "0.1")
    opened = ledger.open(asked(kind="query.summary"), 1, now=0.0, expires=9.0)
    assert {each.cohort for each in opened.values()} == {None}
    trained = ledger.open(asked("def"), 1, now=0.0, expires=9.0)
    assert {each.cohort for each in trained.values()} == {"0.1"}


def test_rows_are_matched_by_their_assignments_or_else_by_their_nodes() -> None:
    ledger = opened(Ledger(), asked(record=model()))
    replies = Replies([8, 5], ["b", "x"], ["", ""], {})
    known, unknown = ledger.of(replies)
    assert known is ledger.of_node(8)
    assert unknown is None
    late = Assignment(8, "train", 0)
    replies.assignments = [late, late]
    assert list(ledger.of(replies)) == [late, late]


def test_ten_thousand_late_assignments_take_bounded_memory() -> None:
    ledger = Ledger(most_bytes=10 * 4 * 1000)
    for number in range(100):
        names = [f"{number}-{i}" for i in range(100)]
        table = asked(nodes=range(100), record=model(1000))
        table.ids = names
        opened(ledger, table, number)
        ledger.give_up(names)
        late = [ledger.peek(each) for each in ledger.expected()]
        held = {id(each.model) for each in late if each is not None and each.model is not None}
        assert len(held) <= 10
    expected = [f"{number}-{i}" for number in range(90, 100) for i in range(100)]
    ledger.forget_expired(1.0)
    assert ledger.expected() == expected
    opened(ledger, asked("n", nodes=[1], record=model(1000)), 100)
    ledger.give_up("n")
    oldest, kept = ledger.peek("90-1"), ledger.peek("91-0")
    assert oldest is not None
    assert kept is not None
    assert oldest.model is None, "only its time would be learned"
    assert kept.model is not None
    ledger.forget_expired(60.1)
    assert ledger.expected() == []


def test_what_is_under_way_survives_a_checkpoint() -> None:
    ledger, shared = Ledger(), model(5)
    ledger.assign(asked(record=shared), 3, "0.1")
    for each in ledger.open(asked(), 3, now=100.0, expires=160.0).values():
        each.tag = "tag"
    ledger.give_up("a")
    state = tree.from_bytes(tree.to_bytes(ledger.state_dict(), "test"), "test")
    assert len(state["models"]) == 1, "what many share is saved once"
    fresh = opened(Ledger(), asked("xyz"))
    fresh.load_state_dict(state)
    assert (fresh.awaited("train"), fresh.busy) == (["b", "c"], {8, 9})
    assert fresh.expected() == ["a"]
    late, open_one = fresh.peek("a"), fresh.peek("b")
    assert late is not None
    assert open_one is not None
    assert (late.node, late.round, late.cohort, late.tag) == (7, 3, "0.1", "tag")
    assert (late.sent, late.expires, late.read) == (100.0, 160.0, False)
    assert late.model is open_one.model
    assert_same(late.model, shared)
    assert fresh.of_node(8) is open_one
    assert fresh.peek("x") is None, "those rounds did not happen"
    fresh.load_state_dict({})
    assert fresh.busy == set()
