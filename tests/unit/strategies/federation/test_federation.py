"""One handle for all layers: who is there, asking, setting aside, writing events."""

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from fakes import FakeGrid, Notes, answer, failing, never, small_model
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from forager.core.log.events import CohortFailed, FineTuned, Quarantined
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS, CLIENT, CLIENT_KEY, CONFIG, IDENTIFY, METRICS, ROUND, RUN
from forager.core.wire.replies import Replies, ReplyStream, Row, tables_in
from forager.core.wire.requests import Requests
from forager.server_app.exchange import Exchange
from forager.server_app.post import Post
from forager.strategies.federation.federation import BadReply, Federation
from forager.strategies.federation.grids import GridView, GridWrapper
from forager.strategies.federation.roster import Roster

KEYS = [str(i) for i in range(5)]
KIND = "query.summary"


def told(message: Message, key: str, look: int = 0) -> list[Message]:
    """Answer a question with one's own name and number."""
    records = {CLIENT: ConfigRecord({CLIENT_KEY: key}), METRICS: MetricRecord({"x": int(key)})}
    return [answer(message, records)]


def network(**behaviours: Any) -> FakeGrid:
    return FakeGrid(KEYS, dict.fromkeys(KEYS, told) | behaviours)


def known(grid: FakeGrid, **settings: Any) -> tuple[Federation, Notes]:
    """A federation that has met everyone, and its journal."""
    federation, notes = Federation(**settings), Notes()
    federation.journal = notes
    federation.nodes(grid)
    grid.sent.clear()
    return federation, notes


def number_in(row: Row) -> int:
    value = row.metrics["x"]
    if value == 3:
        raise BadReply("three is no number")
    assert isinstance(value, int)
    return value


def nodes_of(answers: Iterable[Replies]) -> list[int]:
    """Who has answered."""
    return [node for table in answers for node in table.nodes]


def asked_in(grid: FakeGrid) -> list[str]:
    """Who was asked since the last look."""
    asked = [grid.nodes[m.metadata.dst_node_id] for m in grid.of_kind(KIND)]
    grid.sent.clear()
    return asked


def test_nodes_come_in_the_order_of_their_names_and_are_asked_for_them_once() -> None:
    grid, federation = FakeGrid(["10", "9", "camera", "2"]), Federation()
    names = federation.keys(federation.nodes(grid))
    assert names == ["2", "9", "10", "camera"]
    federation.nodes(grid)
    assert len(grid.of_kind(IDENTIFY)) == 4
    in_view = federation.nodes(GridView(grid, [502, 500]))
    assert federation.keys(in_view) == ["10", "camera"]


def test_a_reply_has_the_name_of_the_client_it_went_to() -> None:
    grid = network()
    federation, _ = known(grid)
    answers = federation.ask(grid, 1, KIND, list(grid.nodes), {})
    said = [name for table in answers for name in table.clients]
    assert said == federation.keys(nodes_of(answers)) == KEYS


def test_who_calls_itself_like_another_is_written_down() -> None:
    grid, federation, notes = FakeGrid(["1", "1"]), Federation(), Notes()
    federation.journal = notes
    federation.nodes(grid)
    federation.nodes(grid)
    (event,) = notes.of(Quarantined)
    assert (event.client, event.reason) == (
        Roster.nameless(501),
        "claims the name 1, which is another's",
    )


def test_only_those_allowed_take_part_and_the_others_are_named_once(said: list[str]) -> None:
    grid = FakeGrid(["1", "2", "thief"])
    federation = Federation(allowed=["1", "2", "9"])
    for _ in range(3):
        assert federation.keys(federation.nodes(grid)) == ["1", "2"]
    assert said == ["left out: 1 of 3 clients, thief (not in clients.allowed)"]


def test_lines_for_people_name_the_owners_and_events_the_keys(said: list[str]) -> None:
    federation, notes = known(network())
    node = federation.nodes(network())[0]
    key = federation.key(node)
    federation.roster.names = {key: "clinic-21"}
    federation.set_aside(1, node, "nan")
    federation.set_aside(2, node, "nan again")
    federation.set_aside(3, node, "nan")
    assert federation.last_refusal == "client clinic-21: nan"
    assert said == ["a reply is set aside, client clinic-21: nan"]  # once for each client
    assert [event.client for event in notes.of(Quarantined)] == [key] * 3
    exchange = Exchange(kind="train", sent=2, failed={key: "raised"}, late=["7"])
    text = exchange.shortfall(0, 1, federation.roster.called)
    assert text.endswith("1 failed, client clinic-21: raised; late: 7")


def test_a_question_has_the_round_the_run_and_what_it_is_about() -> None:
    grid = network()
    federation, _ = known(grid, run="monday")
    model = to_record(small_model())
    federation.ask(grid, 7, KIND, list(grid.nodes)[:3], {CONFIG: {"wants": "loss"}, ARRAYS: model})
    assert len(grid.sent) == 3
    for message in grid.sent:
        assert dict(message.content.config_records[CONFIG]) == {
            ROUND: 7,
            RUN: "monday",
            "wants": "loss",
        }
        assert message.content[ARRAYS] is model
        assert message.metadata.message_type == KIND
    federation.run = ""
    federation.ask(grid, 8, KIND, list(grid.nodes)[:1], {})
    assert dict(grid.sent[-1].content.config_records[CONFIG]) == {ROUND: 8}


def test_everybody_may_be_asked_something_else() -> None:
    """Also where the question is made again for everyone, and thrown away at once."""
    grid = FakeGrid([str(i) for i in range(50)], {str(i): told for i in range(50)})
    federation, _ = known(grid)
    federation.ask(grid, 1, KIND, list(grid.nodes), lambda node: {CONFIG: {"for": str(node)}})
    for message in grid.of_kind(KIND):
        wanted = str(message.metadata.dst_node_id)
        assert message.content.config_records[CONFIG]["for"] == wanted


def test_those_asked_the_same_are_sent_the_same_record() -> None:
    """A model is not copied once a client."""
    grid = network()
    federation, _ = known(grid)
    model, other = to_record(small_model()), to_record({"w": np.zeros(2)})
    even, odd = {ARRAYS: model}, {ARRAYS: other}
    federation.ask(grid, 1, KIND, list(grid.nodes), lambda node: odd if node % 2 else even)
    assert len({id(message.content[CONFIG]) for message in grid.sent}) == 2
    for message in grid.sent:
        expected = other if message.metadata.dst_node_id % 2 else model
        assert message.content[ARRAYS] is expected


def test_nobody_to_ask_is_no_message() -> None:
    grid = network()
    federation, _ = known(grid)
    assert federation.ask(grid, 1, KIND, [], {}) == []
    assert grid.sent == []


def test_who_fails_or_does_not_answer_is_left_out() -> None:
    grid = network(**{"1": failing, "4": never})
    federation, notes = known(grid)
    answers = federation.ask(grid, 1, KIND, list(grid.nodes), {})
    assert federation.keys(nodes_of(answers)) == ["0", "2", "3"]
    assert notes.events == [], "errors are counted where they arrive"
    assert not federation.strikes


def test_names_are_learnt_from_answers() -> None:
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, told), names=dict.fromkeys(KEYS, never))
    federation, _ = known(grid)
    assert federation.key(500) == Roster.nameless(500)
    federation.ask(grid, 1, KIND, [500], {})
    assert federation.key(500) == "0"


def rounds_asked(federation: Federation, grid: FakeGrid, key: str, last: int) -> list[int]:
    """The rounds up to the last in which a client was asked, when all are in every round."""
    found = []
    for number in range(1, last + 1):
        federation.ask(grid, number, KIND, list(grid.nodes), {})
        asked = asked_in(grid)
        assert [other for other in KEYS if other != key] == [k for k in asked if k != key]
        found += [number] if key in asked else []
    return found


@pytest.mark.parametrize("silence", [never, failing])
def test_who_does_not_answer_is_asked_less_and_less_often(silence: Any) -> None:
    """It rests for one round, then for 2, 4, 8 and so on: nobody waits for it every time."""
    grid = network(**{"3": silence})
    federation, _ = known(grid)
    assert rounds_asked(federation, grid, "3", 40) == [1, 3, 6, 11, 20, 37]


def test_nobody_rests_for_ever() -> None:
    grid = network(**{"3": never})
    federation, _ = known(grid)
    asked = rounds_asked(federation, grid, "3", 400)
    assert set(np.diff(asked[-4:])) == {65}


def test_who_answers_again_is_asked_every_time_again() -> None:
    grid = network(**{"3": never})
    federation, _ = known(grid)
    rounds_asked(federation, grid, "3", 10)
    grid.behaviours = dict.fromkeys(KEYS, told)
    assert federation.awake([503, 500], 10) == [500]
    for number in (11, 12, 13):
        assert len(federation.ask(grid, number, KIND, list(grid.nodes), {})) == len(KEYS)
    grid.behaviours = {**grid.behaviours, "3": never}
    federation.ask(grid, 14, KIND, [503], {})
    assert federation.awake([503], 15) == []
    assert federation.awake([503], 16) == [503], "it starts with a short rest again"


def test_when_all_rest_no_message_is_sent() -> None:
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, never))
    federation, _ = known(grid)
    federation.ask(grid, 1, KIND, list(grid.nodes), {})
    grid.sent.clear()
    assert federation.ask(grid, 2, KIND, list(grid.nodes), {}) == []
    assert grid.sent == []


def test_a_rest_goes_by_the_name_not_by_the_node() -> None:
    """A device that restarts is another node, and no quicker."""
    grid = network(**{"3": never})
    federation, _ = known(grid)
    federation.ask(grid, 1, KIND, list(grid.nodes), {})
    del grid.nodes[503]
    grid.nodes[903] = "3"
    federation.nodes(grid)
    assert federation.awake([903], 2) == []


class Asking(GridWrapper):
    """A grid that keeps how it was asked."""

    def ask(self, requests: Requests, timeout: float, quorum: float) -> Iterable[Message]:
        self.asked = (timeout, quorum)
        return super().ask(requests, timeout, quorum)


def test_deadline_and_quorum_reach_the_grid_through_any_view() -> None:
    asking = Asking(network())
    federation = Federation(deadline=7.5, quorum=0.6)
    view = GridView(GridView(asking, [500, 501]), [501])
    assert nodes_of(federation.ask(view, 1, KIND, [501], {})) == [501]
    assert asking.asked == (7.5, 0.6)


def test_a_plain_grid_of_flower_will_do() -> None:
    class Plain(FakeGrid):
        timeouts: list[float | None] = []  # noqa: RUF012

        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> Iterable[Message]:
            self.timeouts.append(timeout)
            return super().send_and_receive(messages, timeout=timeout)

    grid = Plain(KEYS, dict.fromkeys(KEYS, told))
    federation = Federation(deadline=3.0, identify_timeout=2.0)
    federation.nodes(grid)
    assert len(federation.ask(grid, 1, KIND, list(grid.nodes), {})) == len(KEYS)
    assert len(federation.ask(GridView(grid, [500]), 1, KIND, [500], {})) == 1
    assert grid.timeouts == [2.0, 3.0, 3.0]


def test_a_quorum_of_answers_is_enough_by_the_post() -> None:
    grid = network(**{"3": never})
    federation, _ = known(grid, deadline=60.0, quorum=0.8)
    post = Post(grid, federation, deadline=60.0, poll=0.002)
    started = time.monotonic()
    answers = federation.ask(post, 1, KIND, list(grid.nodes), {})
    assert time.monotonic() - started < 5
    assert federation.keys(nodes_of(answers)) == ["0", "1", "2", "4"]
    assert post.last is not None
    assert post.last.late == ["3"]
    assert federation.awake([503], 2) == []


def test_what_can_be_read_is_returned_and_the_rest_set_aside() -> None:
    grid = network()
    federation, notes = known(grid)
    answers = federation.ask(grid, 4, KIND, list(grid.nodes), {})
    assert federation.readable(4, answers, number_in) == {500: 0, 501: 1, 502: 2, 504: 4}
    assert notes.events == [Quarantined(round=4, client="3", reason="three is no number")]
    assert dict(federation.strikes) == {"3": 1}


def test_sound_replies_are_passed_on_as_they_come_and_errors_left_out() -> None:
    grid = network(**{"1": failing})
    federation, notes = known(grid)
    question = RecordDict({CONFIG: ConfigRecord({ROUND: 1})})
    messages = [Message(question, dst_node_id=n, message_type="train") for n in grid.nodes]
    replies = list(grid.send_and_receive(messages))
    read: list[int] = []

    def take(row: Row) -> None:
        read.append(row.node)
        number_in(row)

    stream = ReplyStream(tables_in(iter(replies)))
    sound = iter(stream.through(lambda table: federation.read_rows(2, table, take)))
    assert read == []
    assert next(sound).metadata.src_node_id == 500
    assert read == [500]
    assert [reply.metadata.src_node_id for reply in sound] == [502, 504]
    assert 501 not in read
    assert [(event.round, event.client) for event in notes.of(Quarantined)] == [(2, "3")]


def test_a_row_of_two_metric_records_is_no_answer_to_anything() -> None:
    def double(message: Message, key: str, look: int = 0) -> list[Message]:
        return [answer(message, {METRICS: MetricRecord({"x": 1}), "more": MetricRecord({"x": 2})})]

    grid = network(**{"2": double})
    federation, notes = known(grid)
    answers = federation.ask(grid, 4, KIND, list(grid.nodes)[:3], {})
    assert federation.readable(4, answers, number_in) == {500: 0, 501: 1}
    columns = federation.columns(5, answers, lambda table: (list(table.metrics["x"]), {}))
    assert columns == {500: 0, 501: 1}
    told = [(event.round, event.client, event.reason) for event in notes.of(Quarantined)]
    assert told == [(number, "2", "2 metric records instead of one") for number in (4, 5)]


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), ZeroDivisionError("x")])
def test_a_fault_of_ours_is_not_held_against_a_client(error: Exception) -> None:
    grid = network()
    federation, notes = known(grid)
    answers = federation.ask(grid, 1, KIND, list(grid.nodes), {})

    def broken(row: Row) -> None:
        raise error

    with pytest.raises(type(error)):
        federation.readable(1, answers, broken)
    with pytest.raises(type(error)):
        federation.read_rows(1, answers[0], broken)
    assert notes.events == []
    assert not federation.strikes


def test_strikes_add_up_by_client_and_are_bounded() -> None:
    federation = Federation()
    for number in range(12_000):
        federation.set_aside(1, number, "bad")
    federation.set_aside(2, 7, "bad again")
    assert len(federation.strikes) == 10_000
    assert federation.strikes[Roster.nameless(7)] == 2
    for number in range(12_000):
        federation.heard(f"client-{number}", 1, answered=False)
    assert len(federation._misses) == len(federation._rests_until) == 10_000


def test_a_round_is_tried_again_without_those_whose_replies_could_not_be_used() -> None:
    federation, ready = Federation(), []
    for again, bad in ((False, 2), (True, 3), (True, None), (False, None)):
        federation.begin_round(again=again)
        ready.append(list(federation.ready_to_train([1, 2, 3], 1)))
        if bad is not None:
            federation.set_aside(1, bad, "bad")
    assert ready == [[1, 2, 3], [1, 3], [1], [1, 2, 3]]


def test_events_are_those_of_the_cohort_at_work() -> None:
    federation, notes = Federation(), Notes()
    federation.note(FineTuned(round=1))  # nobody listens, and nobody needs to
    federation.journal = notes
    federation.note(FineTuned(round=2))
    with federation.in_cohort("0.1"):
        federation.note(FineTuned(round=3))
        with federation.in_cohort("0.2"):
            federation.set_aside(4, 5, "bad")
        federation.note(CohortFailed(round=5, cohort="0.7"))
        federation.note(FineTuned(round=6))
    federation.note(FineTuned(round=7))
    seen = [(event.round, event.cohort) for event in notes.events]
    assert seen == [(2, None), (3, "0.1"), (4, "0.2"), (5, "0.7"), (6, "0.1"), (7, None)]


def test_a_cohort_that_fails_leaves_no_trace_on_later_events() -> None:
    federation, notes = Federation(), Notes()
    federation.journal = notes
    with pytest.raises(ZeroDivisionError), federation.in_cohort("0.1"):
        raise ZeroDivisionError
    federation.note(FineTuned(round=1))
    assert notes.events[0].cohort is None


def train_message(node: int, model: ArrayRecord) -> Message:
    return message_to(node, model, "train")


def message_to(node: int, model: ArrayRecord, kind: str) -> Message:
    return Message(RecordDict({ARRAYS: model}), dst_node_id=node, message_type=kind)


def test_what_was_sent_is_known_until_the_next_occasion() -> None:
    federation = Federation()
    first, second = to_record({"w": np.zeros(2)}), to_record({"w": np.ones(2)})
    federation.assign(1, iter([train_message(1, first)]))
    federation.assign(1, [train_message(2, second)])  # another cohort of the round
    assert federation.sent_model(1) is first
    assert federation.sent_model(2) is second
    for kind, number in (("evaluate", 1), ("train", 2)):
        federation.assign(number, [message_to(3, second, kind)])
        with pytest.raises(BadReply, match="nobody asked for it"):
            federation.sent_model(1)


def test_messages_are_returned_as_they_were() -> None:
    federation = Federation()
    messages = [train_message(node, to_record({"w": np.zeros(2)})) for node in (5, 3, 4)]
    assigned = federation.assign(1, iter(messages))
    assert [m.metadata.dst_node_id for m in assigned] == [5, 3, 4]
    for given, returned in zip(messages, assigned, strict=True):
        assert returned.metadata.message_type == "train"
        assert dict(returned.content) == dict(given.content)


def test_a_client_cannot_fill_the_log_by_what_is_wrong_with_its_reply() -> None:
    federation, notes = known(network())
    federation.set_aside(1, 1000, f"capacity = {'x' * 10**6!r}\x00\n")
    (event,) = notes.of(Quarantined)
    assert len(event.reason) == 1000
    assert event.reason.startswith("capacity = 'xxx")
