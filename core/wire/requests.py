"""What clients are sent: one shared content, plus columns in which clients differ."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from .arrays import record_bytes
from .keys import CONFIG
from .records import copies_to, entries, filled, node_of

Record = ArrayRecord | ConfigRecord | MetricRecord
_NONCE = 16  # bytes


class MessageTable(Sequence[Message]):
    """Rows that can be read as Flower's messages, which are made on first need."""

    nodes: Sequence[int]

    def __init__(self) -> None:
        self._made: list[Message] | None = None

    def _make(self) -> list[Message]:
        raise NotImplementedError

    def messages(self) -> list[Message]:
        """Return the rows as messages, the same ones every time."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, row: int) -> Message: ...

    @overload
    def __getitem__(self, row: slice) -> list[Message]: ...

    def __getitem__(self, row: int | slice) -> Message | list[Message]:
        return self.messages()[row]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages())

    def __len__(self) -> int:
        return len(self.nodes)


class Requests(MessageTable):
    """What clients are sent."""

    def __init__(
        self,
        message: Message,
        nodes: Sequence[int],
        own: Mapping[str, list[Record | None]] | None = None,
    ) -> None:
        super().__init__()
        self.message = message  # what all are sent, and its envelope
        self.nodes = nodes
        self.own = dict(own or {})  # one record per client; None where a client gets none
        self.ids: list[str] = []  # of the messages, once they have been sent
        self.nonces: list[str] = []  # what only the node that is asked knows of its message

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "Requests | None":
        """Return messages of one kind as a table, made anew if they were looked at, or None."""
        if isinstance(messages, Requests) and messages._made is None:
            return messages if len(messages) else None
        rows = list(messages)
        if not rows:
            return None
        contents = [entries(message.content) for message in rows]
        names = dict.fromkeys(name for content in contents for name in content)
        shared, own = dict[str, Record](), dict[str, list[Record | None]]()
        for name in names:
            column: list[Any] = [content.get(name) for content in contents]
            if all(record is column[0] for record in column):
                shared[name] = column[0]
            else:
                own[name] = column
        first = rows[0]
        first_content, first.content = first.content, filled(RecordDict, shared)
        envelope = copies_to(first, [node_of(first)])[0]
        first.content = first_content
        table = cls(envelope, [node_of(message) for message in rows], own)
        ids = [message.metadata.message_id for message in rows]
        table.ids = ids if all(ids) else []
        nonces = [message.metadata.group_id for message in rows]
        table.nonces = nonces if all(nonces) else []
        return table

    @classmethod
    def joined(cls, parts: Sequence["Requests"]) -> "Requests | None":
        """Return tables of one kind as one, in their order; what all rows share stays shared."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else None
        columns = [{**part.shared, **part.own} for part in parts]
        names = dict.fromkeys(name for column in columns for name in column)
        shared, own = dict[str, Record](), dict[str, list[Record | None]]()
        for name in names:
            first = parts[0].shared.get(name)
            if first is not None and all(part.shared.get(name) is first for part in parts):
                shared[name] = first
            else:
                own[name] = [record for part in parts for record in part.column(name)]
        whole = parts[0].message
        whole.content = filled(RecordDict, shared)
        return cls(whole, [node for part in parts for node in part.nodes], own)

    @property
    def kind(self) -> str:
        """The kind of message."""
        return self.message.metadata.message_type

    @property
    def shared(self) -> dict[str, Any]:
        """The records that all are sent, for reading only."""
        return entries(self.message.content)

    @property
    def config(self) -> dict[str, Any]:
        """The settings that the first row is sent, which are most often those of all."""
        record = self.record(CONFIG, 0)
        return {} if record is None else entries(record)

    def record(self, name: str, row: int) -> Any:
        """Return a record of one row; None if it has none of that name."""
        return self.own[name][row] if name in self.own else self.shared.get(name)

    def column(self, name: str) -> list[Any]:
        """Return a record of all rows."""
        return self.own[name] if name in self.own else [self.shared.get(name)] * len(self)

    def put(self, name: str, record: Record, rows: Iterable[int] | None = None) -> None:
        """Send a record to all, or to some rows."""
        if rows is None:
            self.own.pop(name, None)
            self.message.content = filled(RecordDict, {**self.shared, name: record})
        else:
            self.own[name] = list(self.column(name))
            for row in rows:
                self.own[name][row] = record
        self._made = None

    def put_column(self, name: str, column: Sequence[Record | None]) -> None:
        """Send every row a record of its own, or none."""
        self.own[name] = list(column)
        self._made = None

    def content(self, row: int) -> dict[str, Any]:
        """Return the records of one row."""
        if not self.own:
            return dict(self.shared)
        mine = {name: column[row] for name, column in self.own.items()}
        return {name: r for name, r in {**self.shared, **mine}.items() if r is not None}

    def select(self, rows: Sequence[int]) -> "Requests":
        """Return some of the rows, in this order."""
        own = {name: [column[row] for row in rows] for name, column in self.own.items()}
        table = Requests(self.message, [self.nodes[row] for row in rows], own)
        table.ids = [self.ids[row] for row in rows] if self.ids else []
        table.nonces = [self.nonces[row] for row in rows] if self.nonces else []
        return table

    def row_bytes(self) -> list[int]:
        """Return the bytes of the values that each row is sent."""
        sizes: dict[int, int] = {}  # most rows share a record

        def size(record: Record | None) -> int:
            if record is None:
                return 0
            if id(record) not in sizes:
                sizes[id(record)] = record_bytes(record)
            return sizes[id(record)]

        common = sum(size(r) for name, r in self.shared.items() if name not in self.own)
        if not self.own:
            return [common] * len(self)
        return [common + sum(map(size, row)) for row in zip(*self.own.values(), strict=True)]

    def expire_after(self, seconds: float) -> None:
        """Give all messages a time to live."""
        self.message.metadata.ttl = seconds
        for message in self._made or ():
            message.metadata.ttl = seconds

    def sign(self) -> None:
        """Give every message a random number, as its group id: nobody can answer without it."""
        drawn = secrets.token_hex(_NONCE * len(self))
        self.nonces = [drawn[i : i + 2 * _NONCE] for i in range(0, len(drawn), 2 * _NONCE)]
        self._put_nonces(self._made or ())

    def _put_nonces(self, messages: Iterable[Message]) -> None:
        for message, nonce in zip(messages, self.nonces, strict=False):
            message.metadata.__dict__["_group_id"] = nonce

    def _make(self) -> list[Message]:
        if not (self.ids or self.nonces):
            self.sign()
        messages = copies_to(self.message, self.nodes)
        self._put_nonces(messages)
        for row, message in enumerate(messages):
            if self.own:
                message.content = filled(RecordDict, self.content(row))
            if self.ids:
                message.metadata.__dict__["_message_id"] = self.ids[row]
        return messages
