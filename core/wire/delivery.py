"""What comes of messages that were sent, whatever runtime brought it."""

from collections.abc import Iterable, Iterator

from flwr.app import Message

from .replies import Replies


class Delivery(Iterable[Message]):
    """What a runtime has for messages that were sent: tables of replies, and errors."""

    def __init__(self, tables: list[Replies], errors: list[Message]) -> None:
        self.tables = tables
        self.errors = errors

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "Delivery":
        """Return messages, as any of Flower's grids hands them out, as arrivals."""
        if isinstance(messages, Delivery):
            return messages
        if isinstance(messages, Replies):
            return cls([messages], [])
        replies = list(messages)
        tables = [Replies.of(reply) for reply in replies if not reply.has_error()]
        return cls(tables, [reply for reply in replies if reply.has_error()])

    def __iter__(self) -> Iterator[Message]:
        yield from (message for table in self.tables for message in table)
        yield from self.errors
