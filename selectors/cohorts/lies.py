"""Requests that contradict where a client's update lies (Auxo, section 5.2, robustness)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least
from .affinity import OWN_SIDE

Flags = NDArray[np.bool_]

_FITS = np.float32(OWN_SIDE)

_BARRED_ROUNDS = 50  # that a client is barred for the first time
_MOST_DOUBLINGS = 10
_REMEMBERED = 100_000  # clients with strikes; names that never come back must not fill the memory


def wrong_cluster(distances: ArrayLike, claimed: ArrayLike, margin: float = 0.25) -> Flags:
    """Return who claims a cluster that is much farther away than the nearest one.

    - ``claimed``: the cluster that the request names; -1 for none.
    - ``margin``: how much farther: by that share of the distance to the nearest.
    """
    lengths, labels = np.asarray(distances, dtype=np.float64), np.asarray(claimed, dtype=np.intp)
    if (
        lengths.ndim != 2
        or labels.shape != lengths.shape[:1]
        or labels.max(initial=-1) >= (lengths.shape[1])
    ):
        raise ValueError(
            f"claimed: expected one of {lengths.shape[1:]} clusters per row of distances"
        )
    own = np.take_along_axis(lengths, np.maximum(labels, 0)[:, None], axis=1)[:, 0]
    return np.asarray((labels >= 0) & (own > (1 + margin) * lengths.min(axis=1)))


def wrong_cohort(
    instant: ArrayLike, rewards: ArrayLike, known: ArrayLike, margin: float = 0.25
) -> Flags:
    """Return who claims to fit well into a cohort it knows, but lies far outside of it.

    To fit well means a reward above the one that a split gives: clients that were assigned wrongly,
    or joined only recently, are honest.
    """
    fits = np.asarray(known, dtype=np.bool_) & (np.asarray(rewards, dtype=np.float32) > _FITS)
    with np.errstate(invalid="ignore"):  # no reward, no contradiction
        return fits & (np.asarray(instant, dtype=np.float64) < -margin)


class LieCounter:
    """Counts contradictions; clients that keep contradicting are blacklisted for a while.

    An honest client contradicts its update now and then, because its records are from an earlier
    round. A consistent request therefore removes one strike, and nobody is barred for good: after
    some rounds a client may try again, the next time after twice as many.

    - ``strikes``: this many put a client on the blacklist; 0 for never.

    >>> lies = LieCounter(strikes=2)
    >>> [lies.count(["a", "b"], [True, False]) for _ in range(3)]
    [[], ['a'], []]
    >>> lies.total, lies.blacklist
    (2, ['a'])
    """

    def __init__(self, strikes: int = 3) -> None:
        at_least(0, strikes=strikes)
        self.strikes = strikes
        self.total = 0
        self.rounds = 0
        self._strikes: dict[str, int] = {}  # of those that have some and are not barred
        self._barred: dict[str, int] = {}  # the round until which each is
        self._times: dict[str, int] = {}  # that each was barred before

    @property
    def blacklist(self) -> list[str]:
        """Who is barred, in the order of becoming so."""
        return [key for key, until in self._barred.items() if self.rounds < until]

    def allowed(self, keys: Sequence[str]) -> Sequence[str]:
        """Return those of some clients that are not on the blacklist."""
        barred = set(self.blacklist)
        return [key for key in keys if key not in barred] if barred else keys

    def count(self, keys: Sequence[str], lied: ArrayLike, round: int | None = None) -> list[str]:
        """Record one round, by its number or the next, and return who was barred by it."""
        flags = np.asarray(lied, dtype=np.bool_)
        if flags.shape != (len(keys),):
            raise ValueError(f"lied: expected {len(keys)} flags, one per key, got {flags.shape}")
        before = set(self.blacklist)
        self.rounds = self.rounds + 1 if round is None else max(self.rounds, round)
        for key, flag in zip(keys, flags.tolist(), strict=True):
            if key not in before:
                self._strike(key, 1 if flag else -1)
        return [key for key in self.blacklist if key not in before]

    def _strike(self, key: str, change: int) -> None:
        self.total += max(change, 0)
        now = self._strikes.pop(key, 0) + change
        if self.strikes and now >= self.strikes:
            self._barred.pop(key, None)  # so that the order is that of being barred
            self._barred[key] = self.rounds + _BARRED_ROUNDS * 2 ** self._times.get(key, 0)
            self._times[key] = min(self._times.get(key, 0) + 1, _MOST_DOUBLINGS)
            if len(self._times) > _REMEMBERED:
                oldest = next(iter(self._times))
                del self._times[oldest]
                self._barred.pop(oldest, None)
        elif now > 0:
            self._strikes[key] = now
            if len(self._strikes) > _REMEMBERED:
                self._strikes.pop(next(iter(self._strikes)))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts and the blacklist."""
        counts = {"keys": list(self._strikes), "strikes": list(self._strikes.values())}
        barred = {"barred": dict(self._barred), "times": dict(self._times)}
        return counts | barred | {"total": self.total, "rounds": self.rounds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        strikes = map(int, state["strikes"])
        self._strikes = dict(zip(map(str, state["keys"]), strikes, strict=True))
        self._barred = {str(key): int(until) for key, until in state["barred"].items()}
        self._times = {str(key): int(times) for key, times in state["times"].items()}
        self.total, self.rounds = int(state["total"]), int(state["rounds"])
