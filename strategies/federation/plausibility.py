"""What is usual: the median of what all clients claim, and what is absurd against it.

The one class behind every limit that is learned: samples, norms, losses, utilities, velocities,
estimates, changes of control variates. Nobody can set such a limit alone, however early or often
it speaks: every client has one voice, its last claim, whether that was accepted or not. Zeros have
no voice, nor has what is not finite.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_VOICES = 100  # clients whose last claims say what is usual; more if a table has more
_ENOUGH = 5  # voices that settle what is usual in a round before anybody speaks


class UsualSize:
    """Hears what clients claim, and says how much another may.

    In a round, what was usual before decides, so that it does not matter who comes first. Only
    where too little is known do the claims of the round itself decide: then all of them should be
    heard before any is judged. ``factor`` times the usual is absurd. With fewer voices than
    ``fewest`` nothing is usual: of two, there is no way to know which one lies.

    >>> usual = UsualSize(factor=10.0)
    >>> usual.hear("abc", [1.0, 2.0, 0.0])
    >>> usual.most(otherwise=1e6)
    1000000.0
    >>> usual.hear("cde", [3.0, 4.0, 1e9])
    >>> usual.median, usual.most(otherwise=1e6)
    (3.0, 30.0)
    >>> usual.settle()
    >>> usual.hear("abcde", [1e9] * 5)
    >>> usual.median
    3.0
    """

    def __init__(self, factor: float, fewest: int = 3) -> None:
        self.factor = factor
        self.fewest = fewest
        self._claims: dict[str, float] = {}  # of each client the last, the latest at the end
        self._settled = 0.0

    @property
    def settled(self) -> bool:
        """Whether what is usual in this round was known before it."""
        return self._settled > 0

    @property
    def median(self) -> float:
        """The usual size; 0 if too little is known."""
        return self._settled or self._median(self.fewest)

    def settle(self) -> None:
        """Begin a round: what clients have claimed so far says what is usual in it."""
        self._settled = self._median(_ENOUGH)

    def hear(self, clients: Iterable[str], sizes: Iterable[float]) -> None:
        """Take the claims of clients, right or wrong."""
        told = {key: size for key, size in zip(clients, sizes, strict=True) if 0 < size < math.inf}
        for key, size in told.items():
            self._claims.pop(key, None)
            self._claims[key] = size
        for key in list(self._claims)[: max(0, len(self._claims) - max(_VOICES, len(told)))]:
            del self._claims[key]

    def most(self, otherwise: float) -> float:
        """Return the largest size that is not absurd; ``otherwise`` if too little is known."""
        return self.factor * self.median or float(otherwise)

    def _median(self, fewest: int) -> float:
        known = len(self._claims) >= fewest
        return float(np.median(list(self._claims.values()))) if known else 0.0

    def state_dict(self) -> dict[str, float]:
        """Return what is remembered."""
        return dict(self._claims)

    def load_state_dict(self, claims: Mapping[str, float] | Any) -> None:
        """Take back what :meth:`state_dict` returned, or what an older version kept: nothing."""
        self._claims = dict(claims) if isinstance(claims, Mapping) else {}
        self._settled = 0.0
