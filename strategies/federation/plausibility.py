"""What is usual: the median of what was accepted so far, and what is absurd against it."""

from collections import deque
from collections.abc import Iterable

_HISTORY = 200  # accepted values that say what is usual


class UsualSize:
    """Remembers accepted sizes, and says how large another may be.

    Parameters
    ----------
    factor : float
        How many times the usual is absurd.

    Examples
    --------
    >>> usual = UsualSize(factor=10.0)
    >>> usual.most(otherwise=1e6)
    1000000.0
    >>> usual.extend([1.0, 2.0, 3.0])
    >>> usual.most(otherwise=1e6)
    20.0
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self._sizes: deque[float] = deque(maxlen=_HISTORY)
        self._median: float | None = 0.0  # None if it must be found again

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def median(self) -> float:
        """The usual size; 0 if none was accepted yet."""
        if self._median is None:
            ordered, middle = sorted(self._sizes), len(self._sizes) // 2
            self._median = (ordered[middle] + ordered[-middle - 1]) / 2 if ordered else 0.0
        return self._median

    def most(self, otherwise: float) -> float:
        """Return the largest size that is not absurd; ``otherwise`` if nothing is usual yet."""
        return self.factor * self.median if self._sizes else float(otherwise)

    def append(self, size: float) -> None:
        """Accept a size."""
        self._sizes.append(size)
        self._median = None

    def extend(self, sizes: Iterable[float]) -> None:
        """Accept several sizes."""
        self._sizes.extend(sizes)
        self._median = None

    def state(self) -> list[float]:
        """Return what is remembered."""
        return list(self._sizes)

    def load(self, sizes: Iterable[float]) -> None:
        """Take back what :meth:`state` returned."""
        self._sizes = deque(sizes, maxlen=_HISTORY)
        self._median = None
