"""What clients say of their streams, remembered while they are away.

A velocity is measured on most devices, and so it is noisy: what counts is an exponential average
over a client's reports. A client that is away keeps its profile for some rounds; one whose stream
is empty is asked again less and less often.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core.backoff import rest
from ...selectors.stateful import Stateful
from .roster import key_order

AWAY = 50
"""Rounds after which a client that is away is gone for good."""

_MOST_AWAY = 10_000  # clients that are remembered while they are away
_WEIGHT = 0.2  # of the newest report in the average, once there are a few
_MOST_TIMES = 10.0  # the usual velocity that a client may count for whose claims proved wrong
_SHORT = 0.25  # share of what a client claimed to receive, below which its claim was wrong
_TELLING = 20.0  # samples that must have been claimed: chance explains the lack of a few

Profile = dict[str, Any]


class StreamProfiles(Stateful):
    """The profiles of the clients that are here, or were a short while ago."""

    remembers = ("told", "_smooth", "_reports", "_seen", "_empty", "_first", "_wrong", "_round")

    def __init__(self) -> None:
        self.told: dict[str, Profile] = {}
        self._smooth: dict[str, list[float]] = {}
        self._ordered: dict[str, None] = {}  # its keys, as they are sorted
        self._reports: dict[str, int] = {}
        self._seen: dict[str, int] = {}  # the round in which each was last here
        self._empty: dict[str, list[int]] = {}  # times that nothing had come, when to ask again
        self._first: dict[str, list[int]] = {}  # round and count of a report, to check later ones
        self._wrong: set[str] = set()  # who received much less than it claimed, or stores more
        self._round = 0

    def advance(self, server_round: int, here: Iterable[str]) -> None:
        """Learn who is here; forget who has been away for long."""
        self._round = server_round
        self._seen.update(dict.fromkeys(here, server_round))
        away = sorted((last, key) for key, last in self._seen.items() if last != server_round)
        gone = {key for last, key in away if not 0 <= server_round - last <= AWAY}
        gone.update(key for _, key in away[: max(0, len(away) - _MOST_AWAY)])
        self._wrong -= gone
        for memory in self.told, self._smooth, self._reports, self._seen, self._empty, self._first:
            for key in gone:
                memory.pop(key, None)

    def here(self) -> list[Profile]:
        """Return the profiles of the clients that are here."""
        return [told for key, told in self.told.items() if self._seen[key] == self._round]

    def hear(self, key: str, told: Profile) -> None:
        """Take a client's checked profile, and average its velocities."""
        self._check(key, told)
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

    def _check(self, key: str, told: Profile) -> None:
        """Compare what has arrived at a client, and what it stores, with what it claimed."""
        arrived, stored = int(told.get("arrived", 0)), sum(told.get("stored", ()))
        since, before = self._first.setdefault(key, [self._round, arrived])
        claimed = sum(self._smooth.get(key, ())) * (self._round - since)
        if stored > arrived or (claimed >= _TELLING and arrived - before < _SHORT * claimed):
            self._wrong.add(key)
        elif claimed >= _TELLING:
            self._wrong.discard(key)
            self._first[key] = [self._round, arrived]

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
        """Return how fast labels come to clients, in the order of the keys, for reading only.

        Only a device whose claims proved wrong is limited, to some times the usual.
        """
        if self._ordered.keys() != self._smooth.keys():
            self._ordered = dict.fromkeys(sorted(self._smooth, key=key_order))
        rows = {key: row for key in self._ordered if any(row := self._smooth[key])}
        if len(rows) >= 3 and self._wrong:
            most = _MOST_TIMES * float(np.median([sum(row) for row in rows.values()]))
            for key in self._wrong & rows.keys():
                rows[key] = [v * min(1.0, most / sum(rows[key])) for v in rows[key]]
        return rows
