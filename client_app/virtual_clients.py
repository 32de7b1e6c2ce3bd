"""Clients of one process that are known by their numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from flwr.app import Context


class VirtualClients(Sequence[Context]):
    """The contexts of some virtual clients.

    Who needs no more than the number of each, as plain training does, looks at none of them.

    Parameters
    ----------
    nodes : sequence of int
        The clients.
    first : int
        The node of client number 0.
    contexts : mapping
        The contexts of all clients, by node.
    """

    def __init__(self, nodes: Sequence[int], first: int, contexts: Mapping[int, Context]) -> None:
        self._nodes = nodes
        self._first = first
        self._contexts = contexts
        self.looked_at: dict[int, Context] = {}  # by node: only these can have changed

    @property
    def numbers(self) -> list[int]:
        """The number of each client: its partition of the data, and its name."""
        return [node - self._first for node in self._nodes]

    @property
    def total(self) -> int:
        """How many clients there are in all."""
        return len(self._contexts)

    @overload
    def __getitem__(self, index: int) -> Context: ...

    @overload
    def __getitem__(self, index: slice) -> list[Context]: ...

    def __getitem__(self, index: int | slice) -> Context | list[Context]:
        if isinstance(index, slice):
            return [self._context(node) for node in self._nodes[index]]
        return self._context(self._nodes[index])

    def __iter__(self) -> Iterator[Context]:
        return map(self._context, self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def _context(self, node: int) -> Context:
        context = self.looked_at[node] = self._contexts[node]
        return context
