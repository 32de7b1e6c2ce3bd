"""First in, first out: the latest samples."""

from .base import StreamSelector


class Fifo(StreamSelector):
    """Keeps what arrived last.

    >>> from forager.selectors.stream_selectors.base import Offered
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
