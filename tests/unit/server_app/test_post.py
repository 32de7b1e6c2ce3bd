import time
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    by_superlink,
    exchanged,
    failing,
    honest,
    honest_records,
    never,
    small_model,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from forager.core.log.events import Exchanged, Quarantined
from forager.core.wire.arrays import sizes_of, to_record
from forager.core.wire.keys import ARRAYS, CONFIG, IDENTIFY
from forager.core.wire.replies import ReplyStream
from forager.core.wire.requests import Requests
from forager.server_app.exchange import Exchange
from forager.server_app.post import Post
from forager.strategies.federation.clock import ClockedGrid, WallClock
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.roster import Roster

KEYS = [str(i) for i in range(6)]


def make_post(grid: FakeGrid, **settings: Any) -> tuple[Post, Notes]:
    federation, notes = Federation(), Notes()
    federation.journal = notes
    federation.roster.identify(grid, 1.0)
    grid.sent.clear()
    settings = {"deadline": 5.0, "poll": 0.002, **settings}
    return Post(grid, federation, **settings), notes


def train_messages(grid: FakeGrid) -> list[Message]:
    content = RecordDict(
        {ARRAYS: to_record(small_model()), CONFIG: ConfigRecord({"server-round": 1})}
    )
    return [Message(content, dst_node_id=node, message_type="train") for node in grid.nodes]


def keys_of(grid: FakeGrid, replies: Iterable[Message]) -> list[str]:
    return sorted(grid.nodes[reply.metadata.src_node_id] for reply in replies)


def late(looks: int) -> Any:
    """Answer only at this look."""
    return lambda message, key, look: honest(message, key) if look >= looks else []


def gone(message: Message, key: str, look: int) -> list[Message]:
    return [by_superlink(message, 5)]


def expired(message: Message, key: str, look: int) -> list[Message]:
    reply = by_superlink(message, 3)
    reply.metadata.__dict__["_message_type"] = "system"
    return [reply]


def twice(message: Message, key: str, look: int) -> list[Message]:
    return honest(message, key) + honest(message, key)


def test_yields_all_replies_and_writes_the_exchange_down() -> None:
    grid = FakeGrid(KEYS)
    post, notes = make_post(grid)
    post.round = 4
    replies = exchanged(post, train_messages(grid))
    assert keys_of(grid, replies) == KEYS
    (event,) = notes.of(Exchanged)
    assert (event.round, event.kind, event.sent, event.received) == (4, "train", 6, 6)
    assert event.failed == {}
    assert event.late == []
    assert event.seconds >= 0


def test_every_message_carries_its_deadline_as_its_time_to_live_training_twice_that() -> None:
    grid = FakeGrid(KEYS)
    post, _ = make_post(grid, deadline=12.5)
    exchanged(post, train_messages(grid))
    assert [message.metadata.ttl for message in grid.sent] == [25.0] * 6
    exchanged(post, train_messages(grid), deadline=3.0)
    assert [message.metadata.ttl for message in grid.sent[6:]] == [6.0] * 6
    questions = train_messages(grid)
    for message in questions:
        message.metadata.message_type = "query.summary"
    list(post.send_and_receive(questions, timeout=3600))
    assert [message.metadata.ttl for message in grid.sent[12:]] == [12.5] * 6


def test_what_fails_is_in_the_log_once(said: list[str]) -> None:
    grid = FakeGrid(KEYS, {"2": failing, "4": failing})
    post, _ = make_post(grid)
    for _ in range(3):
        exchanged(post, train_messages(grid))
    assert said == [f"client {key} failed at train: client {key} broke" for key in "24"]


def test_clients_that_fail_alike_share_a_line(said: list[str]) -> None:
    def alike(message: Message, key: str, look: int) -> list[Message]:
        return [Message(Error(0, "no memory"), reply_to=message)]

    grid = FakeGrid(KEYS, dict.fromkeys("245", alike))
    post, _ = make_post(grid)
    exchanged(post, train_messages(grid))
    assert said == ["client 2 and 2 others failed at train: no memory"]


def test_late_ones_are_waited_for() -> None:
    grid = FakeGrid(KEYS, {"2": late(5), "4": late(9)})
    post, _ = make_post(grid)
    assert keys_of(grid, exchanged(post, train_messages(grid))) == KEYS


def test_the_slow_are_named_with_their_seconds() -> None:
    grid = FakeGrid(KEYS, {"2": late(20), "4": late(10)})
    post, notes = make_post(grid)
    exchanged(post, train_messages(grid))
    told = notes.of(Exchanged)[-1].reply_seconds
    assert list(told.slowest)[:2] == ["2", "4"]
    assert len(told.slowest) == 3
    assert told.median < told.slowest["4"] < told.slowest["2"]


def test_replies_are_given_as_they_come() -> None:
    grid = FakeGrid(KEYS, {key: late(int(key)) for key in KEYS})
    post, _ = make_post(grid)
    tables = post.exchange(Requests.of(train_messages(grid)))
    assert keys_of(grid, next(tables)) == ["0"]
    assert post.last is not None
    assert post.last.received == 1
    assert keys_of(grid, ReplyStream(tables)) == KEYS[1:]


def test_the_deadline_is_kept_and_the_late_are_named() -> None:
    grid = FakeGrid(KEYS, {"1": never, "5": never})
    post, notes = make_post(grid, deadline=0.2)
    started = time.monotonic()
    replies = exchanged(post, train_messages(grid))
    assert 0.15 < time.monotonic() - started < 2.0
    assert keys_of(grid, replies) == ["0", "2", "3", "4"]
    assert notes.of(Exchanged)[0].late == ["1", "5"]


def test_a_shorter_deadline_may_be_given_but_no_longer_one() -> None:
    grid = FakeGrid(KEYS, {"1": never})
    post, _ = make_post(grid, deadline=0.3)
    for asked in (0.1, 60.0):
        started = time.monotonic()
        exchanged(post, train_messages(grid), deadline=asked)
        assert time.monotonic() - started < 2.0


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(failing, "client 3 broke"), (gone, "error 5")],
    ids=["exception", "node gone"],
)
def test_failures_are_named_by_client_whoever_reports_them(behaviour: Any, reason: str) -> None:
    grid = FakeGrid(KEYS, {"3": behaviour})
    post, notes = make_post(grid)
    replies = exchanged(post, train_messages(grid))
    assert keys_of(grid, replies) == ["0", "1", "2", "4", "5"]
    assert notes.of(Exchanged)[0].failed == {"3": reason}
    assert notes.of(Exchanged)[0].late == []


def test_a_message_that_expired_is_late_not_failed() -> None:
    grid = FakeGrid(KEYS, {"3": expired})
    post, notes = make_post(grid)
    assert len(exchanged(post, train_messages(grid))) == 5
    assert notes.of(Exchanged)[0].failed == {}
    assert notes.of(Exchanged)[0].late == ["3"]


def test_all_failing_ends_at_once() -> None:
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, gone))
    post, notes = make_post(grid, deadline=60)
    started = time.monotonic()
    assert exchanged(post, train_messages(grid)) == []
    assert time.monotonic() - started < 5
    assert sorted(notes.of(Exchanged)[0].failed) == KEYS


def test_failures_of_clients_of_one_name_are_all_counted() -> None:
    grid = FakeGrid(["1", "1", "1"], {"1": failing})
    post, _ = make_post(grid)
    exchanged(post, train_messages(grid))
    assert post.last is not None
    assert post.last.sent == post.last.errors == 3


def test_a_second_reply_is_dropped() -> None:
    grid = FakeGrid(KEYS, {"3": twice})
    post, notes = make_post(grid)
    assert keys_of(grid, exchanged(post, train_messages(grid))) == KEYS
    assert notes.of(Exchanged)[0].received == 6


def test_a_reply_that_is_replayed_later_is_dropped() -> None:
    recorded: list[Message] = []

    def record(message: Message, key: str, look: int) -> list[Message]:
        recorded.extend(honest(message, key))
        return recorded[-1:]

    grid = FakeGrid(KEYS, {"3": record})
    post, notes = make_post(grid, deadline=0.2)
    exchanged(post, train_messages(grid))
    grid.behaviours = {"3": lambda message, key, look: recorded[:1]}
    assert keys_of(grid, exchanged(post, train_messages(grid))) == [k for k in KEYS if k != "3"]
    assert notes.of(Exchanged)[1].late == ["3"]


def test_a_reply_of_another_node_than_was_asked_is_dropped_and_nobody_is_blamed() -> None:
    """Who sent it is not known: the name on it may be that of any honest client."""

    def in_the_name_of_all(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        reply.metadata.__dict__["_src_node_id"] = 501
        return [reply]

    grid = FakeGrid(KEYS, {"3": in_the_name_of_all})
    post, notes = make_post(grid, deadline=0.1)
    post.round = 4
    assert keys_of(grid, exchanged(post, train_messages(grid))) == [k for k in KEYS if k != "3"]
    (event,) = notes.of(Quarantined)
    assert (event.round, event.client) == (4, "?")
    assert "another client's request" in event.reason
    assert not post.federation.strikes
    assert notes.of(Exchanged)[0].late == ["3"], "it may still answer itself"


def forged(message: Message, reply: Message) -> Message:
    """A reply of a node that can name another as its source, but knows only its own messages."""
    reply.metadata.__dict__["_group_id"] = ""
    return reply


@pytest.mark.parametrize("kind", ["train", IDENTIFY])
@pytest.mark.parametrize("what", ["content", "error"])
def test_nobody_answers_in_the_name_of_another(kind: str, what: str) -> None:
    def attacked(message: Message, key: str, look: int) -> list[Message]:
        (false,) = honest(message, "1") if what == "content" else failing(message, key)
        return [forged(message, false), *honest(message, key)]

    grid = FakeGrid(KEYS, {"3": attacked}, wire=True)
    post, notes = make_post(grid)
    grid.names = {"3": attacked}
    messages = train_messages(grid)
    for message in messages:
        message.metadata.__dict__["_message_type"] = kind
    replies = exchanged(post, messages)
    assert keys_of(grid, replies) == KEYS
    says = {grid.nodes[r.metadata.src_node_id]: r.content["client"]["key"] for r in replies}
    assert says["3"] == "3", "the true reply is the one that counts"
    assert notes.of(Exchanged)[0].failed == {}
    (event,) = notes.of(Quarantined)
    assert "in the name of 3" in event.reason
    assert event.client not in KEYS, "whoever it was: not the one that it names"
    assert not post.federation.strikes


def test_an_error_of_another_node_than_was_asked_is_not_believed() -> None:
    def elsewhere(message: Message, key: str, look: int) -> list[Message]:
        (false,) = failing(message, key)
        false.metadata.__dict__["_src_node_id"] = 501
        return [false, *honest(message, key)]

    grid = FakeGrid(KEYS, {"3": elsewhere})
    post, notes = make_post(grid)
    assert keys_of(grid, exchanged(post, train_messages(grid))) == KEYS
    assert notes.of(Exchanged)[0].failed == {}
    assert [event.client for event in notes.of(Quarantined)] == ["?"]
    assert not post.federation.strikes


def test_ids_of_messages_cannot_be_computed_from_one_another() -> None:
    """Flower's id is a hash of all that a message says: copies differ in more than their node."""
    grid = FakeGrid(KEYS)
    post, _ = make_post(grid)
    exchanged(post, train_messages(grid))
    drawn = [message.metadata.group_id for message in grid.of_kind("train")]
    assert len(set(drawn)) == len(KEYS)
    assert all(len(bytes.fromhex(each)) == 16 for each in drawn)
    alike = {}
    for message in grid.of_kind("train"):
        message.metadata.__dict__.update(_dst_node_id=1, _message_id="")
        alike[message.object_id] = message
    assert len(alike) == len(KEYS)


@pytest.mark.parametrize("kind", ["train", IDENTIFY])
def test_an_oversized_reply_is_a_failure(kind: str) -> None:
    def bloated(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        reply.content["more"] = ConfigRecord({"rubbish": bytes(2_000_000)})
        return [reply]

    grid = FakeGrid(KEYS, {"3": bloated}, names={"3": bloated})
    post, notes = make_post(grid)
    messages = train_messages(grid)
    if kind == IDENTIFY:
        nodes = list(grid.nodes)
        messages = [Message(RecordDict(), dst_node_id=n, message_type=kind) for n in nodes]
    assert keys_of(grid, exchanged(post, messages)) == [k for k in KEYS if k != "3"]
    assert "2,000,0" in notes.of(Exchanged)[0].failed["3"]


def test_what_is_large_is_measured_by_what_was_sent() -> None:
    """A large model may be answered by one, and by arrays like it."""
    arrays = {"w": np.zeros(10**6, np.float32)}
    content = RecordDict({ARRAYS: to_record(arrays), CONFIG: ConfigRecord({"server-round": 1})})
    grid = FakeGrid(KEYS)
    post, _ = make_post(grid)

    def with_control(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key) | {"control": to_record(arrays)}
        return [answer(message, records)]

    grid.behaviours = dict.fromkeys(KEYS, with_control)
    messages = [Message(content, dst_node_id=n, message_type="train") for n in grid.nodes]
    assert keys_of(grid, exchanged(post, messages)) == KEYS


def test_rubbish_that_keeps_coming_does_not_hold_up_the_deadline() -> None:
    started = time.monotonic()

    class Chattering(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            assert time.monotonic() - started < 3, "still waiting long after the deadline"
            stray = train_messages(self)[0]
            stray.metadata.__dict__["_message_id"] = "of-another-round"
            return [*super().pull_messages(message_ids), *honest(stray, "0")]

    grid = Chattering(KEYS, {"1": never})
    post = Post(grid, Federation(), deadline=0.2, poll=0.01)
    assert len(exchanged(post, train_messages(grid))) == 5


def test_bytes_down_count_every_message_and_bytes_up_every_good_reply() -> None:
    grid = FakeGrid(KEYS, {"3": failing, "4": never})
    post, notes = make_post(grid, deadline=0.1)
    messages = train_messages(grid)
    replies = exchanged(post, messages)
    (event,) = notes.of(Exchanged)
    model = 12 * 4 + 3 * 4 + 8
    assert event.bytes_down == 6 * (model + 8)
    assert event.bytes_up == sum(sizes_of(reply.content)[0] for reply in replies)
    assert event.bytes_up == 4 * (model + 16 + 1)


@pytest.mark.parametrize("wire", [False, True], ids=["live", "serialised"])
def test_bytes_are_the_same_on_every_transport(wire: bool) -> None:
    grid = FakeGrid(KEYS, wire=wire)
    post, notes = make_post(grid)
    exchanged(post, train_messages(grid))
    assert notes.of(Exchanged)[0].bytes_up == 6 * (12 * 4 + 3 * 4 + 8 + 16 + 1)


def test_over_commitment_stops_waiting_when_enough_have_answered() -> None:
    grid = FakeGrid(KEYS, {"1": never, "4": never})
    post, notes = make_post(grid, deadline=60)
    started = time.monotonic()
    replies = exchanged(post, train_messages(grid), enough=4)
    assert time.monotonic() - started < 5
    assert len(replies) == 4
    assert notes.of(Exchanged)[0].late == ["1", "4"]


def test_without_spares_everybody_is_waited_for() -> None:
    grid = FakeGrid(KEYS, {"4": late(20)})
    post, _ = make_post(grid)
    assert keys_of(grid, exchanged(post, train_messages(grid))) == KEYS


def test_no_messages_are_no_exchange() -> None:
    post, notes = make_post(FakeGrid(KEYS))
    assert exchanged(post, []) == []
    assert list(post.send_and_receive([])) == []
    assert notes.events == []


def test_a_consumer_that_stops_reading_still_leaves_a_note() -> None:
    grid = FakeGrid(KEYS, {key: late(int(key)) for key in KEYS})
    post, notes = make_post(grid)
    tables = post.exchange(Requests.of(train_messages(grid)))
    next(tables)
    tables.close()  # type: ignore[attr-defined]
    assert notes.of(Exchanged)[0].received == 1
    assert notes.of(Exchanged)[0].late == KEYS[1:]


def test_names_are_learnt_from_replies() -> None:
    grid = FakeGrid(KEYS, {"2": failing})
    post = Post(grid, Federation(), deadline=5, poll=0.002)
    exchanged(post, train_messages(grid))
    assert post.federation.roster.key(500) == "0"
    assert post.federation.roster.key(502) == Roster.nameless(502)


@pytest.mark.parametrize("kind", [IDENTIFY, "evaluate"])
def test_any_kind_of_message_can_be_exchanged(kind: str) -> None:
    grid = FakeGrid(KEYS)
    post, notes = make_post(grid)
    content = RecordDict({ARRAYS: to_record(small_model())})
    messages = [Message(content, dst_node_id=node, message_type=kind) for node in grid.nodes]
    assert len(list(post.send_and_receive(messages))) == 6
    assert notes.of(Exchanged)[0].kind == kind


class Refusing(FakeGrid):
    """A SuperLink that does not take messages for nodes that have just been removed."""

    placeholder: str | None = None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids: list[str] = []
        for message in messages:
            if self.nodes[message.metadata.dst_node_id] not in ("2", "3"):
                ids.extend(super().push_messages([message]))
            elif self.placeholder is not None:
                ids.append(self.placeholder)
        return ids


@pytest.mark.parametrize(
    "placeholder", [None, ""], ids=["left out, as in simulation", "empty, as in deployment"]
)
def test_messages_that_the_superlink_refuses_are_failures_not_the_end(
    placeholder: str | None,
) -> None:
    grid = Refusing(KEYS)
    grid.placeholder = placeholder
    post = Post(grid, Federation(), deadline=0.5, poll=0.01)
    replies = exchanged(post, train_messages(grid))
    assert keys_of(grid, replies) == ["0", "1", "4", "5"]
    assert post.last is not None
    assert sorted([*post.last.failed, *post.last.late]) == sorted(map(Roster.nameless, [502, 503]))


def odd_array(dtype: str, shape: tuple[int, ...]) -> Any:
    def behave(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        records[ARRAYS] = ArrayRecord({"w": Array(dtype, shape, "numpy.ndarray", b"")})
        return [answer(message, records)]

    return behave


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("floaty", (3,)),
        ("bfloat16", (3,)),
        ("", (3,)),
        ("float32", (2**62, 2**62)),
        ("float32", (2**70,)),
        ("float32", (-3,)),
        ("O", (1,)),
    ],
)
def test_a_header_that_makes_no_sense_does_not_end_the_exchange(
    dtype: str, shape: tuple[int, ...]
) -> None:
    """Sizes are counted before anybody has looked at the reply."""
    grid = FakeGrid(KEYS, {"2": odd_array(dtype, shape)})
    post, notes = make_post(grid)
    replies = exchanged(post, train_messages(grid))
    assert set(keys_of(grid, replies)) >= {"0", "1", "3", "4", "5"}
    assert 0 <= notes.of(Exchanged)[0].bytes_up < 10**6


def test_the_state_of_clients_is_asked_of_the_grid_that_keeps_it() -> None:
    class Keeping(FakeGrid, ClockedGrid):
        kept: ClassVar[dict[str, Any]] = {"500": {"x": np.arange(2)}}
        clock = WallClock()

        def state_dict(self) -> dict[str, Any]:
            return self.kept

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.loaded = state

    keeping = Keeping(KEYS)
    post = Post(keeping, Federation())
    assert post.clients_state() == {**Keeping.kept, "ledger": post.ledger.state_dict()}
    post.load_clients_state({"new": {}})
    assert keeping.loaded == {"new": {}}
    plain = Post(FakeGrid(KEYS), Federation())
    assert plain.clients_state() == {}
    plain.load_clients_state({"ignored": {}})


def test_metrics_alone_are_counted() -> None:
    grid = FakeGrid(
        ["1"],
        {"1": lambda m, k, look: [answer(m, {"metrics": MetricRecord({"a": 1, "b": [1.0, 2.0]})})]},
    )
    post, notes = make_post(grid)
    exchanged(post, train_messages(grid))
    assert notes.of(Exchanged)[0].bytes_up == 24


def questions(grid: FakeGrid) -> Requests:
    content, nodes = RecordDict({ARRAYS: to_record(small_model())}), list(grid.nodes)
    return Requests(Message(content, dst_node_id=nodes[0], message_type="evaluate"), nodes)


@pytest.mark.parametrize("silent", [["1"], ["1", "4"]])
def test_once_a_quorum_has_answered_the_others_are_not_waited_for_till_the_deadline(
    silent: list[str],
) -> None:
    grid = FakeGrid(KEYS, dict.fromkeys(silent, never))
    post, notes = make_post(grid, deadline=60)
    answers = list(post.ask(questions(grid), 60.0, quorum=4 / 6))
    assert keys_of(grid, answers) == [key for key in KEYS if key not in silent]
    (event,) = notes.of(Exchanged)
    assert event.seconds is not None
    assert event.seconds < 5
    assert event.late == silent


def test_without_a_quorum_the_deadline_is_waited_for() -> None:
    grid = FakeGrid(KEYS, dict.fromkeys("14", never))
    post, notes = make_post(grid, deadline=60)
    assert len(list(post.ask(questions(grid), 0.3, quorum=0.8))) == 4
    (event,) = notes.of(Exchanged)
    assert event.seconds is not None
    assert 0.3 <= event.seconds < 5


def test_those_a_little_slower_than_the_quorum_are_heard() -> None:
    """Waited for is as long again as the quorum took."""
    grid = FakeGrid(KEYS, {**dict.fromkeys("01234", late(20)), "5": late(26)})
    post, _ = make_post(grid, deadline=60, poll=0.01)
    assert keys_of(grid, post.ask(questions(grid), 60.0, quorum=5 / 6)) == KEYS


def test_training_knows_no_quorum() -> None:
    grid = FakeGrid(KEYS, {"4": late(30)})
    post, _ = make_post(grid, deadline=60)
    post.federation.quorum = 0.1
    assert keys_of(grid, exchanged(post, train_messages(grid))) == KEYS


def rests(post: Post, server_round: int) -> list[str]:
    federation, grid = post.federation, post.grid
    awake = federation.awake(grid.get_node_ids(), server_round)
    return [key for key in KEYS if key not in federation.keys(awake)]


@pytest.mark.parametrize("silence", [never, expired])
def test_who_was_waited_for_in_vain_rests(silence: Any) -> None:
    grid = FakeGrid(KEYS, {"2": silence})
    post, _ = make_post(grid, deadline=0.05)
    post.round = 3
    exchanged(post, train_messages(grid))
    assert rests(post, 4) == ["2"]
    assert rests(post, 5) == []
    post.round = 5
    exchanged(post, train_messages(grid))
    assert (rests(post, 6), rests(post, 7), rests(post, 8)) == (["2"], ["2"], [])
    grid.behaviours = {}
    post.round = 8
    exchanged(post, train_messages(grid))
    assert rests(post, 9) == []


def test_who_never_evaluates_rests() -> None:
    grid = FakeGrid(KEYS, {"2": never})
    post, _ = make_post(grid, deadline=0.05)
    post.round = 3
    messages = train_messages(grid)
    for message in messages:
        message.metadata.__dict__["_message_type"] = "evaluate"
    exchanged(post, messages)
    assert rests(post, 4) == ["2"]


def test_who_draws_out_every_round_is_named_once_with_what_helps(
    said: list[str],
) -> None:
    post, _ = make_post(FakeGrid(KEYS))
    slow = Exchange("train", 6, took={**dict.fromkeys(KEYS, 2.0), "4": 20.0})
    for _ in range(5):
        post._lessons.advise(slow)
    post._lessons.advise(Exchange("train", 6, took=dict.fromkeys(KEYS, 20.0)))
    (line,) = said
    assert "waited for client 4, 20 s" in line
    assert "round.over-commit" in line


def test_who_was_not_needed_does_not_rest() -> None:
    """With over-commitment the slowest are not waited for: that is no fault of theirs."""
    grid = FakeGrid(KEYS, {"2": never})
    post, notes = make_post(grid, deadline=60)
    post.round = 3
    exchanged(post, train_messages(grid), enough=5)
    assert notes.of(Exchanged)[0].late == ["2"]
    assert rests(post, 4) == []


def test_who_fails_does_not_rest_but_is_counted() -> None:
    grid = FakeGrid(KEYS, {"2": failing})
    post, _ = make_post(grid)
    post.round = 3
    exchanged(post, train_messages(grid))
    assert rests(post, 4) == []


def test_the_reason_of_a_failure_is_cut_to_a_printable_line() -> None:
    def verbose(message: Message, key: str, look: int) -> list[Message]:
        return [Message(Error(2, "a\x1b[31mb\nc " + "x" * 10**6), reply_to=message)]

    grid = FakeGrid(KEYS, {"2": verbose})
    post, notes = make_post(grid)
    exchanged(post, train_messages(grid))
    reason = notes.of(Exchanged)[0].failed["2"]
    assert len(reason) <= 1000
    assert reason.isprintable()


def test_names_count_towards_the_size_of_a_reply() -> None:
    def wordy(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        records["x" * 2_000_000] = ConfigRecord()
        return [answer(message, records)]

    grid = FakeGrid(KEYS, {"2": wordy})
    post, notes = make_post(grid)
    assert keys_of(grid, exchanged(post, train_messages(grid))) == [k for k in KEYS if k != "2"]
    assert list(notes.of(Exchanged)[0].failed) == ["2"]
