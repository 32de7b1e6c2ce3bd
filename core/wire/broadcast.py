"""One message to many clients, and all their replies, as one object each.

On the local engine all clients of a round are sent the same and are trained together. A hundred
messages, each looked at by every layer, would take longer than that training. A
:class:`Broadcast` and a :class:`ReplyStack` are sequences of ordinary messages that are made when
somebody looks at them. As long as nobody has, they are *whole*: what they hold stands for all. From
then on the messages count, since whoever looked may have changed them.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import Any, overload

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from .arrays import to_record
from .keys import ARRAYS, CLIENT, CLIENT_KEY, METRICS, NOTE
from .records import copies_to, filled, replies_to
from .sizes import sizes_of


class _Unmade(MutableSequence[Message]):
    """Messages that are made when one of them is looked at."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = nodes  # the clients, in the order of the messages
        self._made: list[Message] | None = None

    @abstractmethod
    def _make(self) -> list[Message]:
        """Return the messages."""

    @property
    def whole(self) -> bool:
        """Whether nobody has looked at a message yet."""
        return self._made is None

    @property
    def _messages(self) -> list[Message]:
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._messages[index]

    @overload
    def __setitem__(self, index: int, value: Message) -> None: ...

    @overload
    def __setitem__(self, index: slice, value: Iterable[Message]) -> None: ...

    def __setitem__(self, index: Any, value: Any) -> None:
        self._messages[index] = value

    def __delitem__(self, index: int | slice) -> None:
        del self._messages[index]

    def insert(self, index: int, value: Message) -> None:
        """Put a message before another one."""
        self._messages.insert(index, value)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self.nodes) if self._made is None else len(self._made)


class Broadcast(_Unmade):
    """The same message to many clients.

    Parameters
    ----------
    message : Message
        What all are sent; it becomes a part of this.
    nodes : sequence of int
        The clients.

    Examples
    --------
    >>> from .flower_private import TaskIdentity
    >>> TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    >>> sent = Broadcast(Message(RecordDict(), dst_node_id=7, message_type="train"), [7, 8])
    >>> len(sent), sent.kind, sent.whole
    (2, 'train', True)
    >>> [message.metadata.dst_node_id for message in sent], sent.whole
    ([7, 8], False)
    """

    def __init__(self, message: Message, nodes: Sequence[int]) -> None:
        super().__init__(nodes)
        self.message = message
        self.ids: list[str] = []  # of the messages, once they have been sent

    @property
    def content(self) -> RecordDict:
        """What all are sent, for reading only."""
        return self.message.content

    @property
    def kind(self) -> str:
        """The kind of message."""
        return self.message.metadata.message_type

    def expire_after(self, seconds: float) -> None:
        """Give all messages that are not made yet a time to live."""
        self.message.metadata.ttl = seconds

    def to(self, node: int) -> Message:
        """Return the message to one client."""
        return self._messages[self.nodes.index(node)]

    def _make(self) -> list[Message]:
        messages = copies_to(self.message, self.nodes)
        for message, message_id in zip(messages, self.ids, strict=False):
            message.metadata.__dict__["_message_id"] = message_id
        return messages


class ReplyStack(_Unmade):
    """The replies of all clients to a broadcast, as columns.

    Parameters
    ----------
    sent : Broadcast
        What they answer.
    arrays : mapping of arrays
        The trained models; the first axis is the client.
    metrics : mapping of lists
        The metrics, a number per client.
    clients : sequence of str
        What the clients call themselves.
    note : str (default: "")
        What all of them want their operator to know.
    """

    def __init__(
        self,
        sent: Broadcast,
        arrays: Mapping[str, NDArray[Any]],
        metrics: Mapping[str, Sequence[float]],
        clients: Sequence[str],
        note: str = "",
    ) -> None:
        super().__init__(sent.nodes)
        self.sent = sent
        self.arrays = arrays
        self.metrics = dict(metrics)
        self.clients = clients
        self.note = note

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of all values in all replies, and most bytes of one with its names."""
        values, names = sizes_of(self._content(0))
        named = [len(client.encode()) for client in self.clients]
        rest = values - named[0]
        return rest * len(self) + sum(named), rest + max(named) + names

    def as_one(self, arrays: ArrayRecord, metrics: Mapping[str, float]) -> Message:
        """Return a single reply, in the name of all, with these contents."""
        content = {ARRAYS: arrays, METRICS: filled(MetricRecord, metrics)}
        return Message(filled(RecordDict, content), reply_to=self.sent.message)

    def _make(self) -> list[Message]:
        return replies_to(list(self.sent), [self._content(row) for row in range(len(self))])

    def _content(self, row: int) -> RecordDict:
        said = {CLIENT_KEY: self.clients[row]} | ({NOTE: self.note} if self.note else {})
        arrays = {name: array[row] for name, array in self.arrays.items()}
        metrics = {name: values[row] for name, values in self.metrics.items()}
        return filled(
            RecordDict,
            {
                CLIENT: filled(ConfigRecord, said),
                ARRAYS: to_record(arrays),
                METRICS: filled(MetricRecord, metrics),
            },
        )


Messages = Broadcast | list[Message]


def whole_or_list(messages: Iterable[Message]) -> Messages:
    """Return a whole broadcast as it is, and any other messages in a list."""
    if isinstance(messages, Broadcast) and messages.whole:
        return messages
    return list(messages)


def kind_of(messages: Messages) -> str:
    """Return the kind of some messages, which is that of the first."""
    if isinstance(messages, Broadcast):
        return messages.kind
    return messages[0].metadata.message_type
