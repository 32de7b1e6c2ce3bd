"""How long clients take to train, and whether they answer in time at all.

A client that is always later than the deadline would cost every round that asks it the whole
deadline. It is asked less and less often. An answer to a question does not change that: such a
client may well be quick to answer those. What a late reply took is guessed when it is given up, and
known when it comes.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.backoff import rest
from ...selectors.deadlines import learned_deadline
from ...selectors.stateful import Stateful

_WEIGHT = 0.3  # of the newest observation in the means
_LATE = 2.0  # times the seconds waited that a late reply counts for
_FRESH = 16  # rounds that a client expected to be late is left out for
_MOST = 10_000  # clients that are remembered


class ResponseTimes(Stateful):
    """Exponential means, by client, of the seconds until a reply and of the share that fails."""

    remembers = (
        *("_seconds", "_failures", "_observed", "_in_a_row"),
        *("_rests_until", "_guesses", "_measured"),
    )

    def __init__(self, longest: float = math.inf, *, learns_deadline: bool = False) -> None:
        self.longest = longest
        self.learns_deadline = learns_deadline
        self._learned: float | None = None  # until something new is known
        self._seconds: dict[str, float] = {}
        self._failures: dict[str, float] = {}
        self._observed: dict[str, int] = {}  # the round of the last observation, the latest last
        self._in_a_row: Counter[str] = Counter()  # late replies
        self._rests_until: dict[str, int] = {}
        self._guesses: dict[str, float] = {}  # the means before a guess, NaN if there was none
        self._measured: dict[str, int] = {}  # the round of the last reply, in time or late

    def replied(self, key: str, seconds: float, server_round: int) -> None:
        """Learn that a client has answered in time."""
        self._observe(key, seconds, 0.0, server_round)
        self._measured[key] = server_round
        self._in_a_row.pop(key, None)
        self._rests_until.pop(key, None)

    def late(self, key: str, waited: float, server_round: int) -> None:
        """Learn that a client has not answered; it rests for 1, 2, 4, ... rounds."""
        before = self._guesses.get(key, self._seconds.get(key, math.nan))
        self._observe(key, _LATE * waited, 1.0, server_round)
        self._guesses[key] = before
        self._in_a_row[key] += 1
        self._rests_until[key] = server_round + 1 + rest(self._in_a_row[key])

    def failed(self, key: str, server_round: int) -> None:
        """Learn that a client answered with an error, which says nothing of its speed."""
        self._observe(key, None, 1.0, server_round)

    def cut_off(self, key: str, waited: float) -> None:
        """Learn that others were faster: a client takes at least as long as the wait for it."""
        if key in self._seconds:
            self._guesses.setdefault(key, self._seconds[key])
            self._seconds[key] = max(self._seconds[key], waited)
            self._learned = None

    def came_late(self, key: str, seconds: float, server_round: int) -> None:
        """Learn how long a reply took that was given up in a round, in place of a guess.

        That the client was late, and rests for it, stays true. A reply of an earlier round than the
        last one that came changes nothing; guesses of later rounds give way to it.
        """
        if server_round < self._measured.get(key, 0):
            return
        before = self._guesses.pop(key, self._seconds.get(key, math.nan))
        self._seconds[key] = seconds if math.isnan(before) else _mean(before, seconds)
        self._measured[key] = server_round
        self._know(key, max(server_round, self._observed.get(key, 0)))

    def _observe(self, key: str, seconds: float | None, failure: float, server_round: int) -> None:
        if seconds is not None:
            self._seconds[key] = _mean(self._seconds.get(key, seconds), seconds)
            self._guesses.pop(key, None)
        self._failures[key] = _mean(self._failures.get(key, 0.0), failure)
        self._know(key, server_round)

    def _know(self, key: str, server_round: int) -> None:
        """Note when a client was observed last, and forget those observed longest ago."""
        self._learned = None
        self._observed.pop(key, None)
        self._observed[key] = server_round
        for old in list(self._observed)[: max(0, len(self._observed) - _MOST)]:
            for memory in self.remembers:
                getattr(self, memory).pop(old, None)

    def anybody_rests(self) -> bool:
        """Return whether anybody may rest at all."""
        return bool(self._rests_until)

    def rests(self, key: str, server_round: int) -> bool:
        """Return whether a client rests for having been late."""
        return server_round < self._rests_until.get(key, 0)

    def seconds(self, keys: Sequence[str]) -> NDArray[np.float64]:
        """Return how long replies take; NaN where that is not known."""
        return np.array([self._seconds.get(key, math.nan) for key in keys], dtype=np.float64)

    def deadline(self) -> float:
        """Return how long clients have to train."""
        if not self.learns_deadline:
            return self.longest
        if self._learned is None:
            self._learned = learned_deadline(list(self._seconds.values()), self.longest)
        return self._learned

    def failures(self, keys: Sequence[str]) -> NDArray[np.float64]:
        """Return the share of messages that clients fail to answer in time."""
        return np.array([self._failures.get(key, 0.0) for key in keys], dtype=np.float64)

    def expected_in_time(self, key: str, server_round: int) -> bool:
        """Return whether a client is likely to answer in time, judging by its recent replies."""
        fresh = server_round - self._observed.get(key, -_FRESH) < _FRESH
        return not fresh or self._seconds.get(key, 0.0) <= self.deadline()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._learned = None


def _mean(before: float, new: float) -> float:
    return before + _WEIGHT * (new - before)
