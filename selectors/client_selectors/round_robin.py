"""Choose clients in turn."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_selectors.base import Candidates, ClientSelector


class RoundRobin(ClientSelector):
    """Those who have had fewest turns come first; among equals, whose last turn is longest ago.

    Counting turns by key, not remembering a place in a list, keeps it fair when clients come and
    go: a newcomer starts at the least number of turns that anybody present has had, so that it does
    not block the others until it has caught up.

    >>> turns = RoundRobin()
    >>> rng = np.random.default_rng(0)
    >>> [turns.select(Candidates(list("abc")), 2, rng).tolist() for _ in range(3)]
    [[0, 1], [0, 2], [1, 2]]
    """

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._clock = 0

    def select(
        self, candidates: Candidates, count: int, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """Return the positions whose turn it is, in ascending order."""
        if not len(candidates):
            return np.empty(0, dtype=np.intp)
        floor = min((self._turns[key] for key in candidates.keys if key in self._turns), default=0)
        turns = np.array([self._turns.get(key, floor) for key in candidates.keys])
        last = np.array([self._last.get(key, -1) for key in candidates.keys])
        chosen = np.sort(np.lexsort((last, turns))[:count])
        for position in chosen:
            key = candidates.keys[position]
            self._turns[key] = int(turns[position]) + 1
            self._last[key] = self._clock
        self._clock += 1
        return chosen

    def state_dict(self) -> dict[str, Any]:
        """Return the turns taken so far."""
        return {"turns": dict(self._turns), "last": dict(self._last), "clock": self._clock}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._turns, self._last = dict(state["turns"]), dict(state["last"])
        self._clock = int(state["clock"])
