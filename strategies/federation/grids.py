"""How clients are reached: grids that show a part of them, virtual nodes, questions to any app."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, overload

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ...core.wire.flower_private import NodeInfo, Run, is_simulation
from ...core.wire.keys import KIND, QUESTION
from ...core.wire.records import entries, filled
from ...core.wire.requests import Requests
from .clock import ClockedGrid, OwnGrid

Route = Literal["query", "train"]


def question(content: RecordDict, node: int, kind: str, route: Route) -> Message:
    """Return the message that asks a node.

    Forager's own ClientApp has a handler for every kind of question. Any other app has a train
    function with :func:`forager.client_mod` around it, and Flower hands a mod only messages of
    kinds that the app has a function for. There a question is a training message with a record that
    says what it asks.
    """
    if route == "query":
        return Message(content, dst_node_id=node, message_type=kind)
    asked = {**entries(content), QUESTION: ConfigRecord({KIND: kind})}
    return Message(filled(RecordDict, asked), dst_node_id=node, message_type="train")


class GridWrapper(OwnGrid):
    """A grid that forwards everything to another one."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def set_run(self, run: Run) -> None:
        """Set the run of the grid inside."""
        self.grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run of the grid inside."""
        return self.grid.run

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the connected nodes."""
        return self.grid.get_node_ids()

    @property
    def numbered(self) -> "NumberedNodes | None":
        """The nodes of the grid inside that go by their numbers, if it has such nodes."""
        return getattr(self.grid, "numbered", None)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what Flower knows about the connected nodes."""
        return self.grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages and return their ids."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have arrived."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for their replies."""
        return self.grid.send_and_receive(messages, timeout=timeout)

    def ask(self, requests: Requests, timeout: float, quorum: float) -> Iterable[Message]:
        """Send questions and return the answers; see :meth:`server_app.post.Post.ask`."""
        if isinstance(self.grid, GridWrapper):
            return self.grid.ask(requests, timeout, quorum)
        return self.grid.send_and_receive(requests, timeout=timeout)


class GridView(GridWrapper):
    """A grid that shows some of its nodes.

    The list is fixed: Flower's strategies count the nodes, then wait until as many are connected,
    forever if one has left in between.
    """

    def __init__(self, grid: Grid, node_ids: Iterable[int]) -> None:
        super().__init__(grid)
        self.node_ids = as_sequence(node_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes in view."""
        return as_sequence(self.node_ids)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what Flower knows about the nodes in view."""
        shown = set(self.node_ids)
        return [node for node in self.grid.get_nodes() if node.node_id in shown]


def as_sequence(node_ids: Iterable[int]) -> Sequence[int]:
    """Return node ids in a new list; numbered ones, which cannot change, as they are."""
    return node_ids if isinstance(node_ids, NumberedNodes) else list(node_ids)


def simulates(grid: Grid) -> bool:
    """Return whether a grid is that of a simulation: the local engine's, or Flower's own."""
    return isinstance(grid, ClockedGrid) or is_simulation(grid)


def all_node_ids(grid: Grid) -> Sequence[int]:
    """Return the ids of all connected nodes, also where only some of them are in view."""
    while isinstance(grid, GridView):
        grid = grid.grid
    return as_sequence(grid.get_node_ids())


Numbers = range | NDArray[np.int64]


def _same(one: Numbers, other: Numbers) -> bool:
    if isinstance(one, range) or isinstance(other, range):
        return isinstance(one, range) and one == other
    return np.array_equal(one, other)


class NumberedKeys(Sequence[str]):
    """The names of numbered clients, made when they are looked at.

    Numbers are in ascending order; a range has no gaps.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> "NumberedKeys": ...

    def __getitem__(self, place: Any) -> "str | NumberedKeys":
        if isinstance(place, slice):
            return NumberedKeys(self.numbers[place])
        return str(self.numbers[place])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return map(str, self.numbers)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.positions([key]) != [-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberedKeys) and _same(self.numbers, other.numbers)

    __hash__ = None  # type: ignore[assignment]

    def positions(self, keys: Sequence[str]) -> list[int]:
        """Return the places of names, -1 for those that are not among these."""
        numbers = [int(key) if key.isdecimal() and str(int(key)) == key else -1 for key in keys]
        if isinstance(self.numbers, range):
            return [n - self.numbers.start if n in self.numbers else -1 for n in numbers]
        places = np.searchsorted(self.numbers, numbers)
        inside = np.minimum(places, len(self.numbers) - 1)
        found = self.numbers[inside] == numbers if len(self.numbers) else places < 0
        return [int(place) for place in np.where(found, places, -1)]


class NumberedNodes(Sequence[int]):
    """The node ids of some numbered clients, in the order of their numbers."""

    def __init__(self, first: int, numbers: Numbers) -> None:
        self.first = first
        self.numbers = numbers

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> "NumberedNodes": ...

    def __getitem__(self, place: Any) -> "int | NumberedNodes":
        if isinstance(place, slice):
            return NumberedNodes(self.first, self.numbers[place])
        return self.first + int(self.numbers[place])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[int]:
        if isinstance(self.numbers, range):
            return iter(range(self.first + self.numbers.start, self.first + self.numbers.stop))
        return iter((self.first + self.numbers).tolist())

    def __contains__(self, node: object) -> bool:
        if not isinstance(node, int):
            return False
        number = node - self.first
        if isinstance(self.numbers, range):
            return number in self.numbers
        place = int(np.searchsorted(self.numbers, number))
        return place < len(self.numbers) and int(self.numbers[place]) == number

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NumberedNodes)
            and self.first == other.first
            and _same(self.numbers, other.numbers)
        )

    __hash__ = None  # type: ignore[assignment]


def kept_nodes(nodes: Sequence[int], which: NDArray[np.bool_]) -> Sequence[int]:
    """Return the nodes for which ``which`` is true; numbered ones stay numbered."""
    if isinstance(nodes, NumberedNodes):
        return NumberedNodes(nodes.first, np.asarray(nodes.numbers)[which])
    return [node for node, keep in zip(nodes, which, strict=True) if keep]
