"""What clients answer, as columns: stacked arrays, metrics, records by name, one row a client.

A device is a table of one row, and a reply that arrives alone is one more table
(:class:`ReplyStream`). Flower's messages are made at the border: when something really travels, or
when a strategy that is not ours looks at it.
"""

import copy
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from .arrays import (
    checked_arrays,
    from_record,
    misfit_of_stack,
    record_bytes,
    sizes_of,
    stacked,
    to_record,
    value_bytes,
)
from .keys import ARRAYS, CLIENT, CLIENT_KEY, CONTROL, ESTIMATE, METRICS, NOTE, TARGETS
from .records import answered_id, copies_to, entries, filled, replies_to, sender_of
from .requests import MessageTable

Arrays = Mapping[str, NDArray[Any]]

_OURS = (CONTROL, ESTIMATE, TARGETS)  # array records that are not the model


class Replies(MessageTable):
    """What clients answer, one row a client."""

    def __init__(
        self,
        nodes: Sequence[int],
        asked: Sequence[str],
        clients: Sequence[str],
        metrics: Mapping[str, list[Any]],
        stacks: Mapping[str, dict[str, NDArray[Any]]] | None = None,
        records: Mapping[str, list[Any]] | None = None,
        *,
        nonces: Sequence[str] = (),
        note: str = "",
        envelope: Message | None = None,
    ) -> None:
        super().__init__()
        self.nodes = list(nodes)
        self.asked = list(asked)  # the messages that they answer, by id
        self.clients = list(clients)  # what they call themselves; empty where they did not say
        self.metrics = dict(metrics)  # a number or a list per row; None in a row that has none
        self.stacks = dict(stacks or {})  # array records; the first axis of each array is the row
        self.records = dict(records or {})  # all others, and arrays not looked at yet; or None
        self.faults: dict[int, str] = {}  # rows that are no sound reply whatever is asked
        self.assignments: list[Any] = []  # what each row answers, see the ledger; or empty
        self.arrived: float | None = None  # by the clock of a runtime that says so
        self.nonces = list(nonces)  # random numbers of the messages; empty if nothing travelled
        self.note = note
        self._envelope = envelope  # a message that one of them answers
        self._came: list[Message] = []  # as messages, where they came as such

    @classmethod
    def of(cls, reply: Message) -> "Replies":
        """Return one reply as a table of one row."""
        metrics: dict[str, list[Any]] = {}
        records: dict[str, list[Any]] = {}
        found, models = 0, list[str]()
        for name, record in entries(reply.content).items():
            if type(record) is MetricRecord:
                found += 1
                metrics = {key: [value] for key, value in entries(record).items()}
            else:
                records[name] = [record]
                if type(record) is ArrayRecord and name not in _OURS:
                    models.append(name)
        if ARRAYS not in records and len(models) == 1:  # an app of somebody's names it as it likes
            records = {ARRAYS if name == models[0] else name: c for name, c in records.items()}
        client = records.get(CLIENT, [None])[0]
        key = entries(client).get(CLIENT_KEY) if type(client) is ConfigRecord else ""
        table = cls(
            [sender_of(reply)],
            [answered_id(reply)],
            [key if isinstance(key, str) else ""],
            metrics,
            records=records,
            nonces=[reply.metadata.group_id],
        )
        if found != 1:
            table.faults[0] = f"{found} metric records instead of one"
        table._made = table._came = [reply]
        return table

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The trained models, stacked."""
        return self.stack(ARRAYS)

    def stack(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a record, which must fit each other, stacked; or none."""
        if name not in self.stacks and name in self.records:
            rows = [from_record(record) for record in self.records[name]]
            self.stacks[name] = {key: stacked([row[key] for row in rows]) for key in rows[0]}
            del self.records[name]
        return self.stacks.get(name, {})

    def fitting(self, name: str, like: Arrays) -> dict[int, str]:
        """Stack the arrays of a record that are like others; return the rows that are not, and why.

        Shapes are compared before anything is allocated. Rows that do not fit are zero.
        """
        if name in self.stacks:
            reason = misfit_of_stack(self.stacks[name], like)
            return dict.fromkeys(range(len(self)), reason) if reason else {}
        column = self.records.get(name, [None] * len(self))
        wrong: dict[int, str] = {}
        rows: list[Arrays] = []
        for row, record in enumerate(column):
            try:
                rows.append(checked_arrays(record, like))
            except ValueError as error:
                wrong[row] = str(error)
                rows.append({key: np.zeros_like(array) for key, array in like.items()})
        if len(wrong) < len(self):
            self.stacks[name] = {key: stacked([row[key] for row in rows]) for key in like}
            self.records.pop(name, None)
        return wrong

    def rows(self) -> Iterator["Row"]:
        """Return the rows one by one."""
        return (Row(self, place) for place in range(len(self)))

    def has(self, name: str) -> bool:
        """Return whether any row has a record of that name."""
        return name in self.stacks or any(r is not None for r in self.records.get(name, ()))

    def take(self, name: str) -> list[Any]:
        """Take a column of records out; None in rows that have none."""
        self._made = None
        return self.records.pop(name, [None] * len(self))

    def drop(self, name: str) -> None:
        """Take the arrays of a record out."""
        self._made = None
        self.stacks.pop(name, None)

    def take_metric(self, name: str) -> list[Any] | None:
        """Take a column of metrics out; None if no row has it."""
        if name not in self.metrics:
            return None
        self._made = None
        return self.metrics.pop(name)

    def put(self, name: str, stack: dict[str, NDArray[Any]]) -> None:
        """Put arrays in place of those of a record."""
        self._made = None
        self.records.pop(name, None)
        self.stacks[name] = stack

    def set_metric(self, name: str, values: list[Any]) -> None:
        """Put a column of metrics in place of another."""
        self._made = None
        self.metrics[name] = values

    def select(self, rows: Sequence[int]) -> "Replies":
        """Return some of the rows, in this order."""
        if list(rows) == list(range(len(self))):
            return self
        places = np.asarray(rows, dtype=np.int64)
        table = Replies(
            [self.nodes[row] for row in rows],
            [self.asked[row] for row in rows],
            [self.clients[row] for row in rows],
            {name: [values[row] for row in rows] for name, values in self.metrics.items()},
            {n: {k: a[places] for k, a in stack.items()} for n, stack in self.stacks.items()},
            {name: [column[row] for row in rows] for name, column in self.records.items()},
            nonces=[self.nonces[row] for row in rows] if self.nonces else (),
            note=self.note,
            envelope=self._envelope,
        )
        table.faults = {i: self.faults[row] for i, row in enumerate(rows) if row in self.faults}
        table.assignments = [self.assignments[row] for row in rows] if self.assignments else []
        if self._made is not None:
            table._made = [self._made[row] for row in rows]
        table._came = [self._came[row] for row in rows] if self._came else []
        table.arrived = self.arrived
        return table

    def again(self, without: str = "") -> "Replies":
        """Return the rows, but for one record, for somebody who takes columns out."""
        table = copy.copy(self)
        table.metrics, table._made = dict(self.metrics), None
        table.records = {name: c for name, c in self.records.items() if name != without}
        table.stacks = {name: dict(s) for name, s in self.stacks.items() if name != without}
        if without:  # messages hold all that they came with
            table._came = [copy.copy(reply) for reply in self._came]
            for reply in table._came:
                reply.content = RecordDict()
        return table

    @classmethod
    def joined(cls, parts: Sequence["Replies"]) -> "Replies":
        """Return several tables, of at least one row together, as one, in their order."""
        parts = [part for part in parts if len(part)]
        if len(parts) == 1:
            return parts[0]
        stacks: dict[str, dict[str, NDArray[Any]]] = {}
        for name in parts[0].stacks:
            if all(
                part.stacks.get(name, {}).keys() == parts[0].stacks[name].keys() for part in parts
            ):
                stacks[name] = {
                    key: np.concatenate([part.stacks[name][key] for part in parts])
                    for key in parts[0].stacks[name]
                }
        table = cls(
            [node for part in parts for node in part.nodes],
            [asked for part in parts for asked in part.asked],
            [client for part in parts for client in part.clients],
            _end_to_end([part.metrics for part in parts], parts),
            stacks,
            _end_to_end([part._records_but(stacks) for part in parts], parts),
            note=parts[0].note,
            envelope=parts[0]._envelope,
        )
        if all(part.assignments for part in parts):
            table.assignments = [each for part in parts for each in part.assignments]
        if all(part._came for part in parts):
            table._came = [reply for part in parts for reply in part._came]
        table.arrived = parts[-1].arrived
        return table

    def _records_but(self, stacks: Container[str]) -> dict[str, list[Any]]:
        """Return the columns of records, of arrays too, except those of some stacks."""
        others = {n: stack for n, stack in self.stacks.items() if n not in stacks}
        return self.records | {
            name: [to_record({k: a[row] for k, a in stack.items()}) for row in range(len(self))]
            for name, stack in others.items()
        }

    def without(self, rows: Iterable[int]) -> "Replies":
        """Return all rows but some."""
        left_out = set(rows)
        if not left_out:
            return self
        return self.select([row for row in range(len(self)) if row not in left_out])

    def row_bytes(self) -> list[int]:
        """Return the bytes of the values of each row."""
        sizes = np.zeros(len(self), dtype=np.int64)
        for stack in self.stacks.values():
            sizes += sum(array.nbytes // max(1, len(array)) for array in stack.values())
        for column in self.records.values():
            sizes += [0 if record is None else record_bytes(record) for record in column]
        for values in self.metrics.values():
            if all(type(value) is float for value in values):
                sizes += 8
            else:
                sizes += [0 if value is None else value_bytes(value) for value in values]
        if CLIENT not in self.records:
            sizes += [len(client.encode()) for client in self.clients]
            sizes += len(self.note.encode())
        return sizes.tolist()

    def name_bytes(self) -> int:
        """Return the most bytes of all names in a row: a client may fill them."""
        if self._came:
            return max(sizes_of(reply.content)[1] for reply in self._came)
        names = sum(len(n) + sum(map(len, stack)) for n, stack in self.stacks.items())
        names += sum(map(len, self.metrics)) + len(METRICS)
        for name, column in self.records.items():
            held = (len("".join(entries(record))) for record in column if record is not None)
            names += len(name) + max(held, default=0)
        return names

    def content(self, row: int) -> dict[str, Any]:
        """Return the records of one row."""
        content: dict[str, Any] = {}
        if CLIENT not in self.records:
            said = {CLIENT_KEY: self.clients[row]} | ({NOTE: self.note} if self.note else {})
            content[CLIENT] = filled(ConfigRecord, said)
        for name, column in self.records.items():
            if column[row] is not None:
                content[name] = column[row]
        for name, stack in self.stacks.items():
            content[name] = to_record({key: array[row] for key, array in stack.items()})
        held = {name: values[row] for name, values in self.metrics.items()}
        held = {name: value for name, value in held.items() if value is not None}
        content[METRICS] = filled(MetricRecord, held)
        return content

    def _make(self) -> list[Message]:
        contents = [filled(RecordDict, self.content(row)) for row in range(len(self))]
        if self._came:
            replies = [copy.copy(reply) for reply in self._came]
            for reply, content in zip(replies, contents, strict=True):
                reply.content = content
            return replies
        assert self._envelope is not None, "replies that answer nothing cannot be messages"
        envelopes = copies_to(self._envelope, self.nodes)
        for row, message in enumerate(envelopes):
            own = {"_group_id": self.nonces[row]} if self.nonces else {}
            message.metadata.__dict__.update(own, _message_id=self.asked[row])
        return replies_to(envelopes, contents)

    def envelope(self) -> Message:
        """Return a reply without content, in the name of all, for somebody to fill."""
        if self._came:
            reply = copy.copy(self._came[0])
            reply.content = RecordDict()
            return reply
        assert self._envelope is not None, "replies that answer nothing cannot be messages"
        return Message(RecordDict(), reply_to=self._envelope)


class Row:
    """What one client answered: a row of :class:`Replies`, for what is read one by one."""

    __slots__ = ("place", "table")

    def __init__(self, table: Replies, place: int) -> None:
        self.table = table
        self.place = place

    @property
    def node(self) -> int:
        """Who answered."""
        return self.table.nodes[self.place]

    @property
    def metrics(self) -> dict[str, Any]:
        """Its metrics."""
        columns, place = self.table.metrics, self.place
        return {name: c[place] for name, c in columns.items() if c[place] is not None}

    def config(self, name: str) -> dict[str, Any] | None:
        """Return a record of plain values; None if there is none of that name and kind."""
        column = self.table.records.get(name)
        record = None if column is None else column[self.place]
        return entries(record) if type(record) is ConfigRecord else None

    def has(self, name: str) -> bool:
        """Return whether there is a record of that name, of whatever kind."""
        column = self.table.records.get(name)
        return name in self.table.stacks or (column is not None and column[self.place] is not None)

    def arrays(self, name: str, like: Arrays) -> Arrays:
        """Return arrays that are like others and finite; ValueError if they are not."""
        if name in self.table.stacks:
            stack = self.table.stacks[name]
            if reason := misfit_of_stack(stack, like):
                raise ValueError(reason)
            arrays: Arrays = {key: array[self.place] for key, array in stack.items()}
        else:
            column = self.table.records.get(name)
            arrays = checked_arrays(None if column is None else column[self.place], like)
        for key, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"array {key}: values that are not finite")
        return arrays


class ReplyStream(Iterable[Message]):
    """Replies as they arrive: tables of one or many rows, to be read once."""

    def __init__(self, tables: Iterable[Replies]) -> None:
        self.tables = tables

    def __iter__(self) -> Iterator[Message]:
        return (message for table in self.tables for message in table)

    def through(self, step: Callable[[Replies], Replies]) -> "ReplyStream":
        """Return what a step makes of each table; empty ones are left out."""
        return ReplyStream(table for table in map(step, self.tables) if len(table))


def tables_in(replies: Iterable[Message]) -> Iterable[Replies]:
    """Return replies as tables; errors, which were counted where they arrived, are left out."""
    if isinstance(replies, ReplyStream):
        return replies.tables
    if isinstance(replies, Replies):
        return [replies]
    return (Replies.of(reply) for reply in replies if not reply.has_error())


def _end_to_end(
    columns: Sequence[Mapping[str, list[Any]]], parts: Sequence[Replies]
) -> dict[str, list[Any]]:
    """Return columns one below the other; None in the rows of those that have none."""
    return {
        name: [
            value
            for own, part in zip(columns, parts, strict=True)
            for value in own.get(name, [None] * len(part))
        ]
        for name in dict.fromkeys(name for own in columns for name in own)
    }
