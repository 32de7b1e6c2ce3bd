"""The priority queue of ODE and of the rules that keep what scores highest."""

import heapq
import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np


class ValueStore:
    """A queue of the ``capacity`` samples of highest value.

    A full queue gives up its lowest value for one that is as high or higher, the older of equals
    first. Values that are not finite are never stored; a key that is there gets its new value.

    >>> store = ValueStore(2)
    >>> [store.offer(key, value) for key, value in [("a", 1.0), ("b", 3.0), ("c", 0.5)]]
    [None, None, None]
    >>> store.offer("d", 1.0)  # as high as "a", and newer
    'a'
    >>> store.keys()
    ['b', 'd']
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = checked_capacity(capacity)
        self._entries: dict[Any, tuple[float, int, Any]] = {}
        # May hold entries that are no longer so; the first one never is.
        self._heap: list[tuple[float, int, Any]] = []
        self._clock = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def keys(self) -> list[Any]:
        """Return the stored keys, in order of arrival."""
        return list(self._entries)

    def value(self, key: Hashable) -> float:
        """Return the value of a stored key."""
        return self._entries[key][0]

    def offer(self, key: Hashable, value: float) -> Any:
        """Store a key if its value is high enough; return the key that had to go for it, or None.

        ``key in store`` tells whether the offered key was stored.
        """
        if key in self._entries:
            self.refresh(key, value)
            return None
        if not math.isfinite(value) or not self.capacity:
            return None
        entry = (value, self._clock, key)
        self._clock += 1
        if len(self._entries) < self.capacity:
            self._entries[key] = entry
            heapq.heappush(self._heap, entry)
            return None
        if value < self._heap[0][0]:
            return None
        evicted = heapq.heapreplace(self._heap, entry)[2]
        del self._entries[evicted]
        self._entries[key] = entry
        self._tidy()
        return evicted

    def refresh(self, key: Hashable, value: float) -> None:
        """Change the value of a stored key; one that is not finite leaves it as it was."""
        old, arrival, _ = self._entries[key]
        if math.isfinite(value) and value != old:
            self._entries[key] = (value, arrival, key)
            heapq.heappush(self._heap, self._entries[key])
            self._tidy()

    def discard(self, key: Hashable) -> None:
        """Forget a key, if it is stored."""
        if self._entries.pop(key, None) is not None:
            self._tidy()

    def resize(self, capacity: int) -> list[Any]:
        """Change the capacity; return the keys of lowest value that had to go, the lowest first."""
        self.capacity = checked_capacity(capacity)
        if len(self) <= capacity:
            return []
        gone = [key for *_, key in heapq.nsmallest(len(self) - capacity, self._entries.values())]
        for key in gone:
            self.discard(key)
        return gone

    def _tidy(self) -> None:
        """Drop outdated entries from the top of the heap, and all once they are most of it."""
        if len(self._heap) > 2 * len(self._entries) + 8:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        while self._heap and self._entries.get(self._heap[0][2]) is not self._heap[0]:
            heapq.heappop(self._heap)

    def entries(self) -> list[tuple[float, int, Any]]:
        """Return value, time of arrival and key of all that is stored, in order of arrival."""
        return list(self._entries.values())

    def restore(self, entries: Iterable[tuple[float, int, Any]], clock: int) -> None:
        """Restore entries, up to the capacity, and the time of the next arrival."""
        self._entries = {entry[2]: entry for entry in entries}
        self._heap = list(self._entries.values())
        heapq.heapify(self._heap)
        self._clock = clock
        self.resize(self.capacity)

    @property
    def clock(self) -> int:
        """Time of the next arrival."""
        return self._clock

    def state_dict(self) -> dict[str, Any]:
        """Return the keys with their values and order of arrival."""
        values, arrivals, keys = zip(*self._entries.values(), strict=True) if self else ((),) * 3
        state = {"values": np.array(values, dtype=np.float64), "keys": list(keys)}
        return state | {"arrivals": np.array(arrivals, dtype=np.int64), "clock": self._clock}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; samples beyond the capacity are dropped."""
        columns = state["values"].tolist(), state["arrivals"].tolist(), state["keys"]
        self.restore(zip(*columns, strict=True), int(state["clock"]))


def checked_capacity(capacity: int) -> int:
    """Return a number of samples, if it is one.

    >>> checked_capacity(-1)
    Traceback (most recent call last):
    ValueError: capacity: expected a whole number of 0 or more, got -1
    """
    if isinstance(capacity, bool) or not isinstance(capacity, int | np.integer) or capacity < 0:
        raise ValueError(f"capacity: expected a whole number of 0 or more, got {capacity!r}")
    return int(capacity)
