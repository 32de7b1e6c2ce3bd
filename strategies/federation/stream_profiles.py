"""What clients say of their streams, remembered while they are away.

A velocity is measured on most devices, and so it is noisy: what counts is an exponential average
over a client's reports. A client that is away keeps its profile for some rounds; one whose stream
is empty is asked again less and less often.
"""

from collections.abc import Iterable
from typing import Any

from ...core.backoff import rest
from .roster import key_order

AWAY = 50
"""Rounds after which a client that is away is gone for good."""

_MOST_AWAY = 10_000  # clients that are remembered while they are away
_WEIGHT = 0.2  # of the newest report in the average, once there are a few

Profile = dict[str, Any]


class StreamProfiles:
    """The profiles of the clients that are here, or were a short while ago.

    Examples
    --------
    >>> profiles = StreamProfiles()
    >>> profiles.advance(1, ["a", "b"])
    >>> profiles.hear("a", {"velocity": [4.0, 0.0], "capacity": 6})
    >>> profiles.hear("a", {"velocity": [2.0, 0.0], "capacity": 6})
    >>> profiles.velocities(), profiles.unknown("a", 1), profiles.unknown("b", 1)
    ({'a': [3.0, 0.0]}, False, True)
    >>> profiles.advance(50, ["b"])
    >>> list(profiles.told)
    ['a']
    >>> profiles.advance(52, ["b"])  # 51 rounds later
    >>> list(profiles.told)
    []
    """

    def __init__(self) -> None:
        self.told: dict[str, Profile] = {}
        self._smooth: dict[str, list[float]] = {}
        self._reports: dict[str, int] = {}
        self._seen: dict[str, int] = {}  # the round in which each was last here
        self._empty: dict[str, list[int]] = {}  # times that nothing had come, when to ask again
        self._round = 0

    def advance(self, server_round: int, here: Iterable[str]) -> None:
        """Learn who is here; forget who has been away for long."""
        self._round = server_round
        self._seen.update(dict.fromkeys(here, server_round))
        away = sorted((last, key) for key, last in self._seen.items() if last != server_round)
        gone = {key for last, key in away if not 0 <= server_round - last <= AWAY}
        gone.update(key for _, key in away[: max(0, len(away) - _MOST_AWAY)])
        for memory in (self.told, self._smooth, self._reports, self._seen, self._empty):
            for key in gone:
                memory.pop(key, None)

    def here(self) -> list[Profile]:
        """Return the profiles of the clients that are here."""
        return [told for key, told in self.told.items() if self._seen[key] == self._round]

    def hear(self, key: str, told: Profile) -> None:
        """Take a client's checked profile, and average its velocities."""
        self.told[key] = told
        self._seen.setdefault(key, self._round)
        new, old = told["velocity"], self._smooth.get(key, [])
        if sum(old) > 0 and sum(new) > 0:
            count = self._reports[key] = self._reports[key] + 1
            weight = max(_WEIGHT, 1 / count)
            new = [was + weight * (now - was) for was, now in zip(old, new, strict=True)]
        elif sum(old) > 0:  # nothing lately: not a reason to forget what used to come
            new = [(1 - _WEIGHT) * was for was in old]
        else:
            self._reports[key] = 1
        self._smooth[key] = list(new)

    def unknown(self, key: str, server_round: int) -> bool:
        """Return whether it is time to ask a client how fast its labels come."""
        if sum(self._smooth.get(key, ())) > 0:
            return False
        return server_round >= self._empty.get(key, [0, 0])[1]

    def answered(self, keys: Iterable[str], server_round: int) -> None:
        """Learn who has answered; where nothing has come yet, ask again later and later."""
        for key in keys:
            if sum(self._smooth.get(key, ())) > 0:
                self._empty.pop(key, None)
            else:
                times = self._empty.get(key, [0, 0])[0] + 1
                self._empty[key] = [times, server_round + rest(times)]

    def velocities(self) -> dict[str, list[float]]:
        """Return how fast labels come to clients where some do, in the order of the keys."""
        known = sorted((key for key, row in self._smooth.items() if sum(row) > 0), key=key_order)
        return {key: list(self._smooth[key]) for key in known}

    def state_dict(self) -> dict[str, Any]:
        """Return all that is remembered."""
        return {
            "told": self.told,
            "smooth": self._smooth,
            "reports": self._reports,
            "seen": self._seen,
            "empty": self._empty,
            "round": self._round,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.told, self._smooth = dict(state["told"]), dict(state["smooth"])
        self._reports, self._seen = dict(state["reports"]), dict(state["seen"])
        self._empty, self._round = dict(state["empty"]), int(state["round"])
