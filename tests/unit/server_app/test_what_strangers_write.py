"""Error texts and names that clients make up cannot fill the log or forge lines in it."""

from fakes import FakeGrid, Notes, answer
from flwr.app import Error, Message, MetricRecord, RecordDict
from forager.core.log.events import Exchanged
from forager.core.wire.keys import METRICS
from forager.server_app.post import Post
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.roster import Roster


def exchanged(behaviour) -> Exchanged:
    federation = Federation()
    federation.journal = notes = Notes()
    grid = Post(FakeGrid("0", {"0": behaviour}), federation, poll=0.001)
    grid.send_and_receive([Message(RecordDict(), dst_node_id=500, message_type="query.summary")])
    (event,) = notes.of(Exchanged)
    return event


def test_a_reason_is_one_short_printable_line() -> None:
    reason = "\x1b[31mround 99 finished\n" + "x" * 10**6
    event = exchanged(lambda message, key, look: [Message(Error(2, reason), reply_to=message)])
    (said,) = event.failed.values()
    assert len(said) <= 1000
    assert said.isprintable()


def test_names_count_as_size() -> None:
    def behave(message: Message, key: str, look: int) -> list[Message]:
        return [answer(message, {METRICS: MetricRecord({"n" * 3_000_000: 1.0})})]

    event = exchanged(behave)
    assert event.received == 0
    assert "is not read" in event.failed[Roster.nameless(500)]
