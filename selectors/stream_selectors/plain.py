"""Rules that use no information about samples: a uniform draw, the latest, or all of them."""

from typing import Any

from .base import Floats, Offered, StreamSelector


class Reservoir(StreamSelector):
    """Every arrival is kept with the same probability (Vitter's algorithm R).

    >>> rule = Reservoir(capacity=3, seed=1)
    >>> rule.offer(Offered(range(3), [0, 0, 1])).kept.tolist()
    [0, 1, 2]
    >>> for start in range(3, 3000, 3):
    ...     _ = rule.offer(Offered(range(start, start + 3), [0, 1, 2]))
    >>> len(rule), bool(rule.kept.max() > 100)
    (3, True)
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        super().__init__(capacity, seed)
        self._slots: list[int] = []
        self._seen = 0

    def _scores(self, batch: Offered) -> Floats:
        return self._lot.draw(len(batch))

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        self._seen += 1
        if len(self._slots) < self.capacity:
            self._slots.append(key)
            return True, None
        slot = int(score * self._seen)
        if slot >= self.capacity:
            return False, None
        gone, self._slots[slot] = self._slots[slot], key
        return True, gone

    def _again(self, key: int, score: float) -> None:
        self._seen += 1

    def _forget(self, key: int) -> None:
        self._slots.remove(key)

    def state_dict(self) -> dict[str, Any]:
        """Return the stored samples, the number of arrivals, and the generator."""
        return super().state_dict() | {"slots": list(self._slots), "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; samples beyond the capacity are dropped."""
        super().load_state_dict(state)
        self._slots = [key for key in state["slots"] if key in self._labels]
        self._seen = int(state["seen"])


class Fifo(StreamSelector):
    """Keeps what arrived last.

    >>> rule = Fifo(capacity=2)
    >>> rule.offer(Offered([5, 6, 7], [0, 0, 1])).kept.tolist()
    [1, 2]
    >>> rule.offer(Offered([6, 8], [0, 1])).evicted.tolist()  # 6 came again, so 7 is the oldest
    [7]
    """

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        if not self.capacity:
            return False, None
        full = len(self._labels) >= self.capacity
        return True, next(iter(self._labels)) if full else None

    def _again(self, key: int, score: float) -> None:
        self._labels[key] = self._labels.pop(key)


class Unlimited(StreamSelector):
    """Keeps everything, whatever the capacity.

    >>> Unlimited(capacity=1).offer(Offered([5, 6, 5], [0, 0, 0])).kept.tolist()
    [0, 1]
    """

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        return True, None

    def _shrink(self) -> None:
        """Nothing is too much."""
