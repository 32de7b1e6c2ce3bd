"""Replies are pulled by several threads: what is slow holds up few others."""

import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
from fakes import FakeGrid, small_model
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
)
from flwr.supercore.run import Run
from flwr.superlink.grid import http_grid
from flwr.superlink.grid.http_grid import HttpGrid
from forager.core.wire import flower_private
from forager.core.wire.arrays import to_record
from forager.core.wire.delivery import Delivery
from forager.core.wire.keys import ARRAYS
from forager.server_app import parallel_pull
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


class Store:
    """What a SuperLink holds: replies as they were announced, and objects as they were sent."""

    def __init__(self) -> None:
        self.heads: dict[str, Message] = {}
        self.trees: dict[str, ObjectTree] = {}
        self.objects: dict[str, bytes] = {}
        self.missing = threading.Event()  # set when objects come that were announced only

    def take(self, head: Message, root: Any = None, *, whole: bool = True) -> None:
        """Take a reply; ``root`` is what its objects are made of."""
        root = head if root is None else root
        tree = get_object_tree(root)
        head.metadata.__dict__["_message_id"] = tree.object_id
        name = head.metadata.reply_to_message_id or tree.object_id
        self.heads[name], self.trees[name] = head, tree
        if whole:
            nested = get_all_nested_objects(root)
            self.objects |= {key: each.deflate() for key, each in nested.items()}

    def replace(self, name: str, old: Any, new: bytes) -> None:
        """Put another object into a reply, wherever it is."""
        found = {old.object_id: get_object_id(new)}
        self.objects[get_object_id(new)] = new

        def renamed(tree: ObjectTree) -> ObjectTree:
            own = found.get(tree.object_id)
            children = [renamed(each) for each in tree.children]
            if own is None and children:
                content = self.objects[tree.object_id]
                for before, after in zip(tree.children, children, strict=True):
                    content = content.replace(before.object_id.encode(), after.object_id.encode())
                own = get_object_id(content)
                self.objects[own] = content
            return ObjectTree(object_id=own or tree.object_id, children=children)

        self.trees[name] = renamed(self.trees[name])
        self.heads[name].metadata.__dict__["_message_id"] = self.trees[name].object_id

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:
        """Hand out what is asked for, once, and all that is addressed to the server itself."""
        names = [n for n in self.heads if n in request.message_ids or not _answers(self.heads[n])]
        heads = [self.heads.pop(name) for name in names]
        return PullAppMessagesResponse(
            messages_list=[message_to_proto(head) for head in heads],
            message_object_trees=[self.trees[name] for name in names],
        )

    def PullObject(self, request: Any) -> PullObjectResponse:
        """Hand out an object, or wait for it."""
        if request.object_id not in self.objects:
            self.missing.wait(30)
        content = self.objects.get(request.object_id, b"")
        return PullObjectResponse(
            object_found=bool(content), object_available=bool(content), object_content=content
        )

    def ConfirmMessageReceived(self, request: Any) -> None:
        """Forget a reply that was fetched."""


def _answers(head: Message) -> str:
    return head.metadata.reply_to_message_id


def deployed(store: Store) -> SideBySide:
    grid = HttpGrid(token="secret")
    grid.set_run(Run.create_empty(1))
    grid._client = store
    return SideBySide(grid, wait=5.0)


def reply_to(name: str, node: int = 7) -> Message:
    asked = Message(RecordDict(), dst_node_id=node, message_type="train")
    asked.metadata.__dict__["_message_id"] = name
    content = RecordDict({ARRAYS: to_record(small_model())})
    content["metrics"] = MetricRecord({"num-examples": 3})
    content["config"] = ConfigRecord({"note": "x"})
    return Message(content, reply_to=asked)


def pulled(store: Store, *names: str) -> dict[str, Message]:
    """Return replies by the message that they answer; the post must be able to read all."""
    grid, found, end = deployed(store), [], time.monotonic() + 30
    while len(found) < len(names) and time.monotonic() < end:
        found += grid.pull_messages(names)
    Delivery.of(found)
    return {reply.metadata.reply_to_message_id: reply for reply in found}


ROOTS = {
    "a record": lambda: ConfigRecord({"a": 1}),
    "an array": lambda: Array(np.zeros(3)),
    "records without a message": lambda: RecordDict({"a": ConfigRecord()}),
}


@pytest.mark.parametrize("root", ROOTS)
def test_what_is_no_message_is_an_error_of_its_sender_and_harms_no_other(root: str) -> None:
    store = Store()
    store.take(reply_to("a"), ROOTS[root]())
    store.take(reply_to("b", node=8))
    found = pulled(store, "a", "b")
    assert found["b"].content["metrics"]["num-examples"] == 3
    assert found["a"].error.reason.startswith("a reply that cannot be read: ")
    assert found["a"].metadata.src_node_id == 7


@pytest.mark.parametrize(
    "replaced",
    ["records", "arrays", "metrics", "config", "array", "chunk"],
)
@pytest.mark.parametrize(
    "by", ["config", "metrics", "array", "arrays", "records", "message", "rubbish"]
)
def test_an_object_of_another_type_anywhere_in_a_reply_is_used_or_refused(
    replaced: str, by: str
) -> None:
    reply, other = reply_to("a"), reply_to("other")
    array = next(iter(reply.content[ARRAYS].values()))
    parts = {
        "records": reply.content,
        "arrays": reply.content[ARRAYS],
        "metrics": reply.content["metrics"],
        "config": reply.content["config"],
        "array": array,
        "chunk": next(iter(array.children.values())),
    }
    new = {
        "config": ConfigRecord({"b": b"2"}),
        "metrics": MetricRecord({"c": [1.5]}),
        "array": Array(np.ones(2)),
        "arrays": ArrayRecord(),
        "records": RecordDict(),
        "message": Message(Error(1, "an error"), reply_to=other),
    }
    rubbish = b"ConfigRecord  3\0\xff\xff\xff"
    content = rubbish if by == "rubbish" else new[by].deflate()
    store = Store()
    store.take(reply)
    store.take(reply_to("b", node=8))
    if by in new:
        store.objects |= {k: v.deflate() for k, v in get_all_nested_objects(new[by]).items()}
    store.replace("a", parts[replaced], content)
    found = pulled(store, "a", "b")
    assert found["b"].has_content()
    if found["a"].has_content():
        assert isinstance(found["a"].content, RecordDict)
    else:
        assert "cannot be read" in found["a"].error.reason


def test_a_message_in_another_s_name_is_an_error_of_who_announced_it() -> None:
    store = Store()
    for name, forged in {"a": reply_to("a", node=8), "b": reply_to("c")}.items():
        store.take(reply_to(name), forged)
    found = pulled(store, "a", "b")
    assert "names another node" in found["a"].error.reason
    assert "another message" in found["b"].error.reason
    assert {reply.metadata.src_node_id for reply in found.values()} == {7}


def test_a_lost_connection_is_no_client_s_fault() -> None:
    class Cut(Store):
        def PullObject(self, request: Any) -> PullObjectResponse:
            raise httpx.ConnectError("certificate has expired")

    store = Cut()
    store.take(reply_to("a"))
    with pytest.raises(httpx.ConnectError, match="expired"):
        pulled(store, "a")


def test_what_a_node_sends_to_the_server_unasked_is_not_even_fetched() -> None:
    store = Store()
    unasked = Message(
        RecordDict({"x": ConfigRecord({"a": 1})}), dst_node_id=1, message_type="train"
    )
    store.take(unasked, whole=False)  # fetching it would take half a minute
    store.take(reply_to("a"))
    began = time.monotonic()
    assert set(pulled(store, "a")) == {"a"}
    assert time.monotonic() - began < 20


def test_a_reply_whose_objects_do_not_come_holds_up_none_of_its_own_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel_pull, "_PATIENCE", 0.05)
    store = Store()
    store.take(reply_to("a"), whole=False)
    store.take(reply_to("b", node=8))
    grid = deployed(store)
    assert pull_until(grid, ["a", "b"], 1) == {"b"}
    store.missing.set()
    assert pull_until(grid, ["a"], 1) == {"a"}


def test_objects_on_their_way_are_looked_for_again_before_flower_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OnTheirWay(Store):
        looks = 0

        def PullObject(self, request: Any) -> PullObjectResponse:
            self.looks += 1
            if self.looks < 4:
                return PullObjectResponse(object_found=True, object_available=False)
            return super().PullObject(request)

    slow = partial(http_grid.pull_objects, initial_backoff=3600)
    monkeypatch.setattr(http_grid, "pull_objects", slow)
    monkeypatch.setattr(flower_private, "_SOON", 3600)
    store = OnTheirWay()
    store.take(reply_to("a"))
    assert pull_until(deployed(store), ["a"], 1) == {"a"}


def test_a_superlink_that_fails_for_a_moment_is_asked_again() -> None:
    class Locked(Store):
        times = 2

        def PullMessages(self, request: Any) -> PullAppMessagesResponse:
            if self.times:
                self.times -= 1
                asked = httpx.Request("POST", "http://superlink/v1/runtime/pull-messages")
                response = httpx.Response(500, request=asked, text="database is locked")
                raise httpx.HTTPStatusError("500", request=asked, response=response)
            return super().PullMessages(request)

    store = Locked()
    store.take(reply_to("a"))
    assert pull_until(deployed(store), ["a"], 1) == {"a"}
    assert not store.times
