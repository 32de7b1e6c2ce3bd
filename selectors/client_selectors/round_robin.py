"""Choose clients in turn."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Candidates, ClientSelector


class RoundRobin(ClientSelector):
    """Whose last turn is longest ago comes first; newcomers before all, then the lower position.

    Remembering turns by key, not a place in a list, keeps it fair when clients come and go. What is
    remembered of clients that are not candidates any more is forgotten.

    >>> turns = RoundRobin()
    >>> rng = np.random.default_rng(0)
    >>> [turns.select(Candidates(list("abc")), 2, rng).tolist() for _ in range(3)]
    [[0, 1], [0, 2], [1, 2]]
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._turn = 0

    def select(
        self, candidates: Candidates, count: int, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """Return the positions whose turn it is, in ascending order."""
        last = np.array([self._last.get(key, -1) for key in candidates.keys], dtype=np.int64)
        chosen = np.argsort(last, kind="stable")[:count]
        self._last = {key: self._last[key] for key in candidates.keys if key in self._last}
        for position in chosen:
            self._last[candidates.keys[position]] = self._turn
            self._turn += 1
        return np.sort(chosen)

    def state_dict(self) -> dict[str, Any]:
        """Return when each client had its last turn."""
        return {"last": dict(self._last), "turn": self._turn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._last, self._turn = dict(state["last"]), int(state["turn"])
