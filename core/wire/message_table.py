"""Rows that can be read as Flower's messages."""

from collections.abc import Iterator, Sequence
from typing import overload

from flwr.app import Message


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
