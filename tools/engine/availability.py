"""When clients are online, in seconds: a trace that repeats, generated or given as arrays."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DAY = 86_400.0
NIGHTS, HOURS = 0.7, 6.0  # share of nights online, and the mean length of one


class Availability:
    """Disjoint intervals in which each client (`owner`) is online; repeats after ``period``."""

    def __init__(
        self, clients: int, owner: ArrayLike, start: ArrayLike, end: ArrayLike, period: float
    ) -> None:
        self.clients, self.period = clients, float(period)
        self._owner = np.asarray(owner, dtype=np.intp)
        self._start = np.asarray(start, dtype=np.float64)
        self._end = np.asarray(end, dtype=np.float64)
        shapes = {self._owner.shape, self._start.shape, self._end.shape}
        if clients < 0 or not period > 0 or len(shapes) > 1 or self._owner.ndim != 1:
            raise ValueError(
                f"trace: expected clients from 0 on, a positive period and as many owners as "
                f"starts and ends, got {clients}, {period} and {sorted(shapes)}"
            )
        if np.any((self._owner < 0) | (self._owner >= clients)):
            raise ValueError(f"owner: expected numbers of clients, 0 to {clients - 1}")
        if not np.all((self._start >= 0) & (self._start < self._end) & (self._end <= period)):
            raise ValueError(f"start, end: expected 0 <= start < end <= {period} in all intervals")

    @classmethod
    def day_and_night(cls, clients: int, seed: int = 0, days: int = 7) -> "Availability":
        """Return a generated trace: seven nights in ten, a client is online for some six hours."""
        rng = np.random.default_rng(seed)
        habit = rng.normal(2.0, 1.5, clients)
        owner, day = np.nonzero(rng.random((clients, days)) < NIGHTS)
        middle = (24 * day + habit[owner] + rng.normal(0, 1, owner.size)) * 3600
        length = np.clip(rng.normal(HOURS, HOURS / 3, owner.size), 0.1, 24) * 3600
        return cls(clients, *_wrapped(owner, middle - length / 2, length, days * DAY), days * DAY)

    def seconds_left(self, time: float) -> Floats:
        """Return for how long each client stays; zero for those that are offline."""
        now = time % self.period
        left = np.zeros(self.clients)
        here = (self._start <= now) & (now < self._end)
        np.maximum.at(left, self._owner[here], self._end[here] - now)
        to_the_end = np.flatnonzero((left > 0) & (left >= self.period - now))
        if to_the_end.size and now > 0:  # a client online at the end may be online at the beginning
            left[to_the_end] += self.seconds_left(0.0)[to_the_end]
        return left

    def available(self, time: float) -> NDArray[np.bool_]:
        """Return who is online."""
        return np.asarray(self.seconds_left(time) > 0)

    def next_arrival(self, time: float) -> float | None:
        """Return when the next interval starts, for a server that waits; None if there is none."""
        if self._start.size == 0:
            return None
        now = time % self.period
        waits = (self._start - now) % self.period
        return float(time + np.where(waits > 0, waits, self.period).min())


def _wrapped(
    owner: NDArray[np.intp], start: Floats, length: Floats, period: float
) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return the intervals within one period; those that cross its end become two."""
    start = start % period
    end = np.minimum(start + length, start + period)
    crossing = end > period
    owners = np.concatenate([owner, owner[crossing]])
    starts = np.concatenate([start, np.zeros(np.count_nonzero(crossing))])
    ends = np.concatenate([np.minimum(end, period), end[crossing] - period])
    return owners, starts, ends
