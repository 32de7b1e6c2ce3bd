"""Which of several ways to do the same is the fastest: each has its turns at real work."""

from collections.abc import Sequence

_TURNS = 2  # the first of each pays for what is made only once


class Fastest:
    """A choice by measurement: no work is done twice for it.

    Parameters
    ----------
    ways : sequence of str
        What there is to choose from.

    Examples
    --------
    >>> choice = Fastest(["stack", "threads"])
    >>> for seconds in (9.0, 2.0, 3.0, 2.5):
    ...     choice.took(choice.way, seconds, samples=100)
    >>> choice.way, choice.decided
    ('threads', True)
    """

    def __init__(self, ways: Sequence[str]) -> None:
        self._seconds: dict[str, list[float]] = {way: [] for way in ways}

    @property
    def decided(self) -> bool:
        """Whether each had its turns."""
        return all(len(taken) >= _TURNS for taken in self._seconds.values())

    @property
    def way(self) -> str:
        """What to do next: what had fewest turns, and in the end the fastest."""
        if self.decided:
            return min(self._seconds, key=lambda way: min(self._seconds[way]))
        return min(self._seconds, key=lambda way: len(self._seconds[way]))

    def took(self, way: str, seconds: float, samples: int) -> None:
        """Note how long a turn took, for how many samples."""
        if not self.decided:
            self._seconds[way].append(seconds / max(1, samples))

    def __str__(self) -> str:
        each = (f"{way} {1e3 * min(taken):.3g}" for way, taken in self._seconds.items() if taken)
        return f"{self.way} (ms per sample: {', '.join(each)})"
