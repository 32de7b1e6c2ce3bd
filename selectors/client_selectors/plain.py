"""Rules that use no information about clients: a uniform draw, all clients, or turns."""

import numpy as np

from .base import Candidates, ClientSelector, Positions


class Uniform(ClientSelector):
    """Every client is equally likely.

    >>> Uniform().select(Candidates(list("abcd")), 2, np.random.default_rng(0)).tolist()
    [2, 3]
    """

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return positions drawn without replacement, in ascending order."""
        count = min(count, len(candidates))
        return np.sort(rng.choice(len(candidates), size=count, replace=False)).astype(np.intp)


class Everyone(ClientSelector):
    """All candidates take part: ``count`` is their number.

    >>> Everyone().select(Candidates(list("abc")), 3, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return all positions, or the first ``count`` if the caller allows fewer."""
        return np.arange(min(count, len(candidates)))


class RoundRobin(ClientSelector):
    """Clients in turn: first those without a turn, then those whose last turn was longest ago.

    Ties go to the lower position. Turns are remembered by key, not by position, which stays fair if
    clients come and go. Clients that are no longer candidates are forgotten.

    >>> turns = RoundRobin()
    >>> rng = np.random.default_rng(0)
    >>> [turns.select(Candidates(list("abc")), 2, rng).tolist() for _ in range(3)]
    [[0, 1], [0, 2], [1, 2]]
    """

    remembers = ("_last", "_turn")

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._turn = 0

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions whose turn it is, in ascending order."""
        last = np.array([self._last.get(key, -1) for key in candidates.keys], dtype=np.int64)
        chosen = np.argsort(last, kind="stable")[:count]
        self._last = {key: self._last[key] for key in candidates.keys if key in self._last}
        for position in chosen:
            self._last[candidates.keys[position]] = self._turn
            self._turn += 1
        return np.sort(chosen)
