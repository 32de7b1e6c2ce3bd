"""Replies are pulled by several threads: what is slow holds up few others."""

import threading
import time
from collections.abc import Iterable

import pytest
from fakes import FakeGrid
from flwr.app import Message, RecordDict
from forager.server_app.parallel_pull import THREADS, SideBySide

IDS = [str(number) for number in range(100)]


class SlowGrid(FakeGrid):
    """Answers every message at once, but for one whose contents do not come."""

    def __init__(self, slow: str) -> None:
        super().__init__({})
        self.slow, self.contents_come, self.asked = slow, threading.Event(), list[str]()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ids = list(message_ids)
        self.asked += ids
        if self.slow in ids:
            self.contents_come.wait(30)
        replies = [Message(RecordDict(), dst_node_id=1, message_type="train") for _ in ids]
        for reply, message_id in zip(replies, ids, strict=True):
            reply.metadata.__dict__["_reply_to_message_id"] = message_id
        return replies


def answered(replies: Iterable[Message]) -> set[str]:
    return {reply.metadata.reply_to_message_id for reply in replies}


def pull_until(grid: SideBySide, ids: list[str], count: int) -> set[str]:
    found: set[str] = set()
    end = time.monotonic() + 30
    while len(found) < count and time.monotonic() < end:
        found |= answered(grid.pull_messages([each for each in ids if each not in found]))
    return found


def test_a_reply_without_contents_holds_up_only_those_of_its_thread():
    inner = SlowGrid(slow="3")
    grid = SideBySide(inner, wait=0.05)
    found = pull_until(grid, IDS, 85)
    assert "3" not in found
    assert len(found) >= 85, "one part of seven waits"
    inner.contents_come.set()
    left = [each for each in IDS if each not in found]
    assert pull_until(grid, left, len(left)) == set(left)
    assert sorted(inner.asked) == sorted(IDS), "nobody asks for a reply twice"


def test_what_comes_after_it_was_given_up_is_handed_over_later():
    inner = SlowGrid(slow="3")
    grid = SideBySide(inner, wait=0.05)
    assert answered(grid.pull_messages(["3"])) == set()
    inner.contents_come.set()
    assert pull_until(grid, ["5"], 2) == {"3", "5"}


def test_there_are_never_more_threads_than_said():
    inner = SlowGrid(slow="never")
    grid = SideBySide(inner, wait=0.0)
    inner.pull_messages = lambda ids: inner.contents_come.wait(30) and []  # type: ignore[method-assign]
    before = threading.active_count()
    for start in range(0, 400, 10):
        grid.pull_messages([f"{start + number}" for number in range(10)])
    assert threading.active_count() - before == THREADS
    inner.contents_come.set()


def test_an_error_is_raised_where_it_is_waited_for():
    def broken(message_ids: Iterable[str]) -> Iterable[Message]:
        raise ConnectionError("the SuperLink is gone")

    inner = SlowGrid(slow="never")
    inner.pull_messages = broken  # type: ignore[method-assign]
    with pytest.raises(ConnectionError, match="gone"):
        SideBySide(inner, wait=5.0).pull_messages(["1"])
