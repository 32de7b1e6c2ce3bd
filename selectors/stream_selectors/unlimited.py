"""Unlimited storage: the ideal that the others are measured against."""

from .base import StreamSelector


class Unlimited(StreamSelector):
    """Keeps everything, whatever the capacity.

    >>> from forager.selectors.stream_selectors.base import Offered
    >>> Unlimited(capacity=1).offer(Offered([5, 6, 5], [0, 0, 0])).kept.tolist()
    [0, 1]
    """

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        return True, None

    def _shrink(self) -> None:
        """Nothing is too much."""
