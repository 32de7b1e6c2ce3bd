"""Reading and building Flower's records quickly, past their checks and copies.

A round of a hundred small clients handles thousands of entries: to check the type of each, and to
copy the dict on every access, takes longer than training the clients.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict

_Record = TypeVar("_Record", ArrayRecord, ConfigRecord, MetricRecord)
_Filled = TypeVar("_Filled", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)

_KINDS: tuple[Any, ...] = (ArrayRecord, ConfigRecord, MetricRecord, RecordDict)
_EMPTY = {kind: kind().__dict__ for kind in _KINDS}


def entries(record: ArrayRecord | ConfigRecord | MetricRecord | RecordDict) -> dict[str, Any]:
    """Return the dict inside a record, for reading only."""
    return record.__dict__["_data"]  # type: ignore[no-any-return]


def filled(kind: type[_Filled], values: Mapping[str, Any]) -> _Filled:
    """Return a record of these values, which must be of types that the record allows."""
    record = kind.__new__(kind)
    record.__dict__.update(_EMPTY[kind], _data=dict(values))
    return record


def records_of(content: RecordDict, kind: type[_Record]) -> list[_Record]:
    """Return the records of one kind."""
    return [record for record in entries(content).values() if type(record) is kind]


def record_at(content: RecordDict, name: str, kind: type[_Record]) -> _Record | None:
    """Return the record of that name if there is one and it is of that kind."""
    record = entries(content).get(name)
    return record if type(record) is kind else None


def attach(message: Message, name: str, record: ArrayRecord | ConfigRecord) -> None:
    """Add a record to one message; others that share its content keep theirs."""
    message.content = filled(RecordDict, {**entries(message.content), name: record})


def detach(message: Message, name: str, kind: type[_Record]) -> _Record | None:
    """Take the record of that name out of a message; None if it is not there or of another kind."""
    record = record_at(message.content, name, kind)
    if name in entries(message.content):
        kept = {key: value for key, value in entries(message.content).items() if key != name}
        message.content = filled(RecordDict, kept)
    return record


def contents(message: Message) -> dict[str, Any]:
    """Return the records of a message that has some, by name, for reading only."""
    return message.__dict__["_content"].__dict__["_data"]  # type: ignore[no-any-return]


def node_of(message: Message) -> int:
    """Return the node that a message goes to."""
    return message.__dict__["_metadata"].__dict__["_dst_node_id"]  # type: ignore[no-any-return]


def sender_of(reply: Message) -> int:
    """Return the node that a reply is from."""
    return reply.__dict__["_metadata"].__dict__["_src_node_id"]  # type: ignore[no-any-return]


def answered_id(reply: Message) -> str:
    """Return the id of the message that a reply answers."""
    return reply.__dict__["_metadata"].__dict__["_reply_to_message_id"]  # type: ignore[no-any-return]


def copies_to(message: Message, nodes: Iterable[int]) -> list[Message]:
    """Return a message with the same content for each of these nodes, the first one's included."""
    shared, content = message.metadata.__dict__, message.content
    copies = []
    for node in nodes:
        metadata = Metadata.__new__(Metadata)
        metadata.__dict__.update(shared, _dst_node_id=node)
        copy = Message.__new__(Message)
        # A content of its own: what a layer adds for one client is not for the others.
        own = filled(RecordDict, entries(content))
        copy.__dict__.update(_metadata=metadata, _content=own, _error=None)
        copies.append(copy)
    return copies


def replies_to(messages: Sequence[Message], contents: Sequence[RecordDict]) -> list[Message]:
    """Return a reply to each message of one kind and sending; Flower makes the first one."""
    replies = [Message(contents[0], reply_to=messages[0])]
    shared = replies[0].metadata.__dict__
    for message, content in zip(messages[1:], contents[1:], strict=True):
        asked = message.__dict__["_metadata"].__dict__
        metadata = Metadata.__new__(Metadata)
        metadata.__dict__.update(
            shared,
            _src_node_id=asked["_dst_node_id"],
            _reply_to_message_id=asked["_message_id"],
            _group_id=asked["_group_id"],
        )
        reply = Message.__new__(Message)
        reply.__dict__.update(_metadata=metadata, _content=content, _error=None)
        replies.append(reply)
    return replies


def sent_arrays(message: Message, name: str) -> ArrayRecord:
    """Return the ArrayRecord of a message that is known to carry one."""
    record = entries(message.content)[name]
    assert isinstance(record, ArrayRecord)
    return record
