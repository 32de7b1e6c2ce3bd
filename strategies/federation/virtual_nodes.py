"""Clients that are known by their numbers: described, not listed.

A run of a million virtual clients uses a hundred per round. Their node ids stand in one range, and
the name of each is its place in that range, so that neither is kept for clients that nobody looks
at.
"""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

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

    def keys(self) -> NumberedKeys:
        """Return their names."""
        return NumberedKeys(self.numbers)


def kept_nodes(nodes: Sequence[int], which: NDArray[np.bool_]) -> Sequence[int]:
    """Return the nodes for which ``which`` is true; numbered ones stay numbered."""
    if isinstance(nodes, NumberedNodes):
        return NumberedNodes(nodes.first, np.asarray(nodes.numbers)[which])
    return [node for node, keep in zip(nodes, which, strict=True) if keep]
