"""Replies that come after their round: heard once, checked like any other, never aggregated."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    assert_same,
    exchanged,
    honest,
    honest_records,
    never,
    small_model,
)
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid.inmemory_grid import InMemoryGrid
from forager.core.config import read_config
from forager.core.log.events import Exchanged, LateReplied, Quarantined
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, CLIENT, CONFIG, METRICS, PAYLOAD, ROUND, SPARSE
from forager.server_app import post as posts
from forager.server_app.loop import Loop
from forager.server_app.post import Post
from forager.server_app.retries import LoopPlan
from forager.strategies.build import build_strategy
from forager.strategies.federation import clock as clocks
from forager.strategies.federation.federation import Federation

KEYS = [str(i) for i in range(6)]
SLOW = "5"
_ERROR = Error(2, "it broke")


class Clock:
    """Time that passes while somebody sleeps, and not otherwise."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (posts, clocks):
        monkeypatch.setattr(module, "time", clock)
    return clock


class Tardy:
    """Answers once it may."""

    def __init__(self, reply: Any = honest) -> None:
        self.may = False
        self.reply = reply

    def __call__(self, message: Message, key: str, look: int = 0) -> list[Message]:
        return self.reply(message, key) if self.may else []


def make_post(grid: FakeGrid, **settings: Any) -> tuple[Post, Notes]:
    federation, notes = Federation(), Notes()
    federation.journal = notes
    federation.roster.identify(grid, 1.0)
    post = Post(grid, federation, **{"deadline": 60.0, "poll": 0.002, **settings})
    return post, notes


def train(post: Post, server_round: int, enough: int | None = 5) -> list[Message]:
    """Play the exchange of a round; five of six are enough."""
    post.round = server_round
    records = {ARRAYS: to_record(small_model()), CONFIG: ConfigRecord({ROUND: server_round})}
    nodes = post.grid.get_node_ids()
    messages = [Message(RecordDict(records), dst_node_id=n, message_type="train") for n in nodes]
    return exchanged(post, messages, enough=enough)


def missed(reply: Any = honest, **settings: Any) -> tuple[Post, Notes, FakeGrid]:
    """A round that did without the slow client, whose reply is there now."""
    slow = Tardy(reply)
    grid = FakeGrid(KEYS, {SLOW: slow})
    post, notes = make_post(grid, **settings)
    train(post, 1)
    slow.may = True
    post.round = 2
    return post, notes, grid


def test_a_reply_that_comes_after_enough_others_is_heard_once() -> None:
    post, notes, grid = missed()
    assert notes.of(Exchanged)[0].late == [SLOW]
    (late,) = post.late()
    (asked,) = late.assignments
    assert (asked.round, asked.cohort) == (1, None)
    assert [grid.nodes[node] for node in late.nodes] == [SLOW]
    assert_same(asked.model, to_record(small_model()))
    (event,) = notes.of(LateReplied)
    assert (event.round, event.client, event.asked_in) == (2, SLOW, 1)
    assert event.seconds is not None
    assert event.bytes_up > 0
    assert post.late() == []


def test_it_is_found_while_others_are_waited_for_and_not_mixed_up_with_them() -> None:
    post, notes, _ = missed()
    assert len(train(post, 2, enough=6)) == 6  # with a reply of this round
    assert [event.asked_in for event in notes.of(LateReplied)] == [1]
    assert [late.assignments[0].round for late in post.late()] == [1]


def test_what_it_took_replaces_the_guess_but_the_client_still_rests(clock: Clock) -> None:
    slow = Tardy()
    post, notes = make_post(FakeGrid(KEYS, {SLOW: slow}), deadline=60.0, poll=1.0)
    train(post, 1, enough=None)
    times, federation = post.federation.times, post.federation
    assert times.seconds([SLOW]) >= 2 * 60.0
    assert len(federation.awake([505], 2)) == 0
    slow.may, post.round = True, 2
    clock.sleep(9.0)
    assert len(post.late()) == 1
    assert [event.seconds for event in notes.of(LateReplied)] == [clock.now]
    assert times.seconds([SLOW]).tolist() == [clock.now]
    assert times.failures([SLOW]).tolist() == pytest.approx([0.3])
    assert times.rests(SLOW, 2), "it would cost the whole deadline again"
    assert len(federation.awake([505], 2)) == 1, "it is not silent: it may be asked"
    assert federation.strikes[SLOW] == 0


def test_a_time_is_learned_of_a_client_that_was_never_in_time() -> None:
    post, notes, _ = missed()
    assert np.isnan(post.federation.times.seconds([SLOW])).all()
    post.late()
    assert post.federation.times.seconds([SLOW]).tolist() == [notes.of(LateReplied)[0].seconds]


@pytest.mark.parametrize(("passed", "heard"), [(119.0, 1), (121.0, 0)])
def test_a_training_message_lives_twice_its_deadline(
    clock: Clock, passed: float, heard: int
) -> None:
    post, _, grid = missed(deadline=60.0)
    assert {message.metadata.ttl for message in grid.of_kind("train")} == {120.0}
    clock.sleep(passed)
    assert len(post.late()) == heard


def twice(message: Message, key: str) -> list[Message]:
    return honest(message, key) + honest(message, key)


def test_a_second_reply_is_not_heard() -> None:
    post, notes, _ = missed(twice)
    assert len(post.late()) == 1
    assert post.late() == []
    assert len(notes.of(LateReplied)) == 1


def of_another(message: Message, key: str) -> list[Message]:
    (reply,) = honest(message, key)
    reply.metadata.__dict__["_src_node_id"] = 501
    return [reply]


def too_large(message: Message, key: str) -> list[Message]:
    records = honest_records(message, key)
    return [answer(message, {**records, "more": ConfigRecord({"b": bytes(3 * 2**20)})})]


@pytest.mark.parametrize(
    ("reply", "offender", "strikes", "reason"),
    [
        (of_another, "?", {}, "another client's request"),
        (too_large, SLOW, {SLOW: 1}, "is not read"),
    ],
)
def test_a_reply_of_another_or_a_huge_one_is_set_aside(
    reply: Any, offender: str, strikes: dict[str, int], reason: str
) -> None:
    post, notes, _ = missed(reply)
    assert post.late() == []
    (event,) = notes.of(Quarantined)
    assert (event.round, event.client) == (2, offender)
    assert reason in event.reason
    assert post.federation.strikes == strikes
    assert np.isnan(post.federation.times.seconds([SLOW])).all()
    assert notes.of(LateReplied) == []


def forging(grid: FakeGrid, forged: str) -> None:
    """Let a grid hand out replies that nobody asked for."""
    pull = grid.pull_messages

    def with_forged(message_ids: Iterable[str]) -> Iterable[Message]:
        (reply,) = honest(grid.of_kind("train")[-1], SLOW)
        reply.metadata.__dict__["_reply_to_message_id"] = forged
        return [*pull(message_ids), reply]

    grid.pull_messages = with_forged  # type: ignore[method-assign]


def test_an_answer_to_nothing_is_dropped() -> None:
    post, notes, grid = missed(lambda message, key: [])
    forging(grid, "m999")
    assert post.late() == []
    assert len(train(post, 2)) == 5
    assert notes.of(LateReplied) == []


def test_what_was_asked_before_a_resume_is_not_looked_for_any_more() -> None:
    post, notes, grid = missed()
    asked = [m.metadata.message_id for m in grid.of_kind("train")]
    post.load_clients_state(post.clients_state())
    assert post.late() == []
    forging(grid, asked[-1])  # even if the runtime hands it out
    assert len(train(post, 2)) == 6
    assert notes.of(LateReplied) == []


def test_errors_and_questions_are_not_looked_for() -> None:
    post, notes, grid = missed(lambda message, key: [Message(_ERROR, reply_to=message)])
    assert post.late() == []
    assert post.late() == []
    slow = Tardy()
    grid.behaviours = {SLOW: slow}
    nodes = grid.get_node_ids()
    config = RecordDict({CONFIG: ConfigRecord({ROUND: 2})})
    exchanged(post, [Message(config, n, "evaluate") for n in nodes], enough=5)
    slow.may = True
    assert post.late() == []
    assert notes.of(LateReplied) == []


def test_a_grid_looks_for_no_more_than_it_keeps() -> None:
    keys = [str(i) for i in range(300)]
    grid = FakeGrid(keys, dict.fromkeys(keys[1:], never))
    post, _ = make_post(grid)
    looked: list[int] = []
    pull = grid.pull_messages
    for server_round in range(1, 6):  # more than are kept
        train(post, server_round, enough=1)
    grid.pull_messages = lambda ids: looked.append(len(list(ids))) or pull(ids)  # type: ignore
    post.late()
    assert looked == [1000]


def loop_with(behaviour: Any, **keys: Any) -> tuple[Loop, Notes]:
    federation, notes = Federation(), Notes()
    federation.journal = notes
    given = {"num-clients": 6, "clients-per-round": 5, "round.over-commit": 0.2}
    config = read_config({**given, **{k.replace("_", "-"): v for k, v in keys.items()}})
    post = Post(
        FakeGrid(KEYS, {SLOW: behaviour}),
        federation,
        poll=0.002,
    )
    strategy = build_strategy(config, federation)
    loop = Loop(
        strategy,
        post,
        to_record(small_model()),
        LoopPlan(num_rounds=4),
        evaluate=lambda arrays: {"accuracy": 0.5, "loss": 1.0},
        callbacks=[],
    )
    return loop, notes


def tardy(reply: Any = honest) -> Any:
    """Answers at the second look: in its own round five others are enough at the first."""
    return lambda message, key, look: reply(message, key) if look else []


def test_a_late_reply_is_never_aggregated() -> None:
    heard, notes = loop_with(tardy())
    silent, _ = loop_with(never)
    assert (heard.run(), silent.run()) == ("completed", "completed")
    assert [event.asked_in for event in notes.of(LateReplied)] == [1, 2, 3]
    assert_same(heard.arrays, silent.arrays)
    assert not notes.of(Quarantined)


def not_finite(message: Message, key: str) -> list[Message]:
    records = honest_records(message, key)
    arrays = from_record(records[ARRAYS])
    arrays["layer.bias"] = np.full_like(arrays["layer.bias"], np.nan)
    return [answer(message, {**records, ARRAYS: to_record(arrays)})]


def absurd(message: Message, key: str) -> list[Message]:
    metrics = MetricRecord({"num-examples": 10**9, "train_loss": 0.5})
    return [answer(message, {**honest_records(message, key), METRICS: metrics})]


def of_two_parts(message: Message, key: str) -> list[Message]:
    """Claims to be of a later round, in a record that nobody asked for."""
    odd = {"more": to_record(small_model()), CONFIG: ConfigRecord({ROUND: 99})}
    return [answer(message, {**honest_records(message, key), **odd})]


@pytest.mark.parametrize("reply", [not_finite, absurd, of_two_parts])
@pytest.mark.parametrize("uplink", ["dense", "top-k"])
def test_a_late_reply_that_makes_no_sense_is_set_aside(reply: Any, uplink: str) -> None:
    if uplink == "top-k" and reply is not absurd:
        reply = lambda message, key: [answer(message, _malformed(message, key))]  # noqa: E731
    loop, notes = loop_with(tardy(reply), uplink=uplink, client_selector="oort")
    assert loop.run() == "completed"
    assert {event.client for event in notes.of(Quarantined)} == {SLOW}
    assert all(event.reason.startswith("late: ") for event in notes.of(Quarantined))
    assert loop.federation.strikes[SLOW] == len(notes.of(LateReplied)) == 3


def _malformed(message: Message, key: str) -> dict[str, Any]:
    return {**honest_records(message, key), SPARSE: ConfigRecord({PAYLOAD: b"nothing"})}


def test_the_round_is_the_servers_whatever_a_reply_says() -> None:
    def claims(message: Message, key: str) -> list[Message]:
        said = ConfigRecord({ROUND: 99, "client-key": key})
        return [answer(message, {**honest_records(message, key), CLIENT: said})]

    post, notes, _ = missed(claims)
    (late,) = post.late()
    assert late.assignments[0].round == 1
    assert notes.of(LateReplied)[0].asked_in == 1


@pytest.fixture
def superlink() -> Iterator[tuple[InMemoryGrid, Any, list[int]]]:
    """Flower's own state of a SuperLink, with two nodes."""
    factory = LinkStateFactory(
        FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
    )
    state = factory.state()
    run_id = state.create_run(
        *("", "", "", {}, NOOP_FEDERATION_ID, None, None, TaskType.SERVER_APP)
    )
    nodes = []
    for name in ("a", "b"):
        nodes.append(state.create_node("", "", name.encode(), 60.0))
        state.activate_node(nodes[-1], 60.0)
    grid = InMemoryGrid(factory)
    (run,) = state.get_run_info(run_ids=[run_id])
    grid.set_run(run)
    usual, TaskIdentity.run_id = TaskIdentity.run_id, run_id
    yield grid, state, nodes
    TaskIdentity.run_id = usual


def answers(state: Any, node: int, key: str) -> None:
    """Let a node answer what it was sent."""
    for message in state.get_message_ins(node, limit=None):
        (reply,) = honest(message, key)
        reply.metadata.__dict__.update(_message_id=f"reply to {message.metadata.message_id}")
        reply.metadata.__dict__.update(_src_node_id=node)
        assert state.store_message_res(reply), "the SuperLink refuses it"


def test_flowers_superlink_hands_out_what_comes_after_the_deadline(
    clock: Clock, superlink: Any
) -> None:
    grid, state, nodes = superlink
    federation, notes = Federation(), Notes()
    federation.journal = notes
    post = Post(grid, federation, deadline=60.0, poll=5.0)
    records = {ARRAYS: to_record(small_model()), CONFIG: ConfigRecord({ROUND: 1})}
    messages = [Message(RecordDict(records), dst_node_id=n, message_type="train") for n in nodes]
    post.round = 1
    push = grid.push_messages

    def push_and_answer(given: Any) -> Any:
        ids = push(given)
        answers(state, nodes[0], "0")
        return ids

    grid.push_messages = push_and_answer
    assert len(exchanged(post, messages)) == 1
    assert len(notes.of(Exchanged)[0].late) == 1
    answers(state, nodes[1], "1")
    post.round = 2
    (late,) = post.late()
    assert (late.nodes, late.assignments[0].round) == ([nodes[1]], 1)
    (event,) = notes.of(LateReplied)
    assert event.seconds == clock.now == 60.0
    assert post.late() == []
