"""The server's memory of clients: ages, participation, last answers, punctuality."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.backoff import rest
from ...selectors.deadlines import learned_deadline
from ...selectors.stateful import Stateful
from .grids import NumberedKeys

_MOST_GONE = 5_000  # absent clients that are remembered


class ClientMemory:
    """Observations of clients by key.

    The age of a client starts at zero, grows by one in every round in which it is not chosen, and
    is zero again after one in which it is. Kept is the round since which it grows, so that a round
    changes only those chosen. Numbered clients that were never chosen are kept as one crowd. Ages
    belong to clients: all cohorts share them, and a round counts once, however many choose in it.
    """

    def __init__(self) -> None:
        self._now = 0  # rounds that have passed
        self._seen = 0  # those that had when the present choice began
        self._round: int | None = None  # the server's last round
        self._since: dict[str, int] = {}
        self._crowd = NumberedKeys(range(0))
        self._crowd_since = 0
        self._here: Collection[str] = ()  # who was connected in the last round
        self._participated: dict[str, bool] = {}  # in the order in which they were first chosen
        self._answers: dict[str, dict[str, Any]] = {}
        self._told_in: dict[str, dict[str, int]] = {}  # the rounds that these are of
        self._picks: Counter[str] = Counter()

    def begin(self, server_round: int) -> None:
        """Let ages be those before a round, also if others have chosen in it already."""
        self._seen = self._now - (self._round == server_round)

    def round_passed(
        self, keys: Collection[str], chosen: Collection[str], server_round: int | None = None
    ) -> None:
        """Let a round pass for all clients known or given; the ages of those chosen restart.

        The same round of the server passes once.
        """
        if server_round is None or server_round != self._round:
            self._now, self._round = self._now + 1, server_round
        self._seen = self._now
        if keys != self._here:
            self._meet(keys)
            self._here = keys
        self._since.update(dict.fromkeys(chosen, self._now))
        self._participated.update(dict.fromkeys(chosen, True))
        self._picks.update(chosen)

    def crowded(self, connected: int) -> bool:
        """Return whether more absent clients are known than need be, beside those connected."""
        return len(self._since) > _MOST_GONE + 2 * connected

    def _meet(self, keys: Collection[str]) -> None:
        whole = isinstance(keys, NumberedKeys) and isinstance(keys.numbers, range)
        if whole and not len(self._crowd):
            assert isinstance(keys, NumberedKeys)
            self._crowd, self._crowd_since = keys, self._now - 1
        elif keys != self._crowd:
            for key in keys:
                if key not in self._since and key not in self._crowd:
                    self._since[key] = self._now - 1

    def forget(self, here: Collection[str]) -> None:
        """Forget the absent clients that have not been chosen for longest."""
        gone = sorted((k for k in self._since if k not in here), key=self._since.__getitem__)
        told = [*self._answers.values(), *self._told_in.values()]
        for key in gone[: len(gone) - _MOST_GONE // 2]:
            for known in (self._since, self._picks, *told):
                known.pop(key, None)
            self._participated.pop(key, None)

    def picked(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Return how often clients have been chosen."""
        return self._gathered(keys, self._picks, 0).astype(np.int64)

    def learn(self, key: str, name: str, value: Any, server_round: int = 0) -> None:
        """Remember a client's answer of a round, in place of an older one."""
        self._answers.setdefault(name, {})[key] = value
        self._told_in.setdefault(name, {})[key] = server_round

    def learn_all(self, values: Mapping[str, Any], name: str, server_round: int = 0) -> None:
        """Remember the answers of several clients, of one round, in place of older ones."""
        self._answers.setdefault(name, {}).update(values)
        self._told_in.setdefault(name, {}).update(dict.fromkeys(values, server_round))

    def told_in(self, key: str, name: str) -> int:
        """Return the round of a client's answer; -1 if there is none."""
        return self._told_in.get(name, {}).get(key, -1)

    def knows(self, key: str, name: str) -> bool:
        """Return whether a client has ever answered this."""
        return key in self._answers.get(name, {})

    def ages(self, keys: Sequence[str]) -> list[int]:
        """Return the ages of clients."""
        return [int(age) for age in self.values(keys, "age")]

    def values(self, keys: Sequence[str], name: str) -> NDArray[Any]:
        """Return one value per client, NaN where it is not known."""
        if name == "age":
            if isinstance(keys, NumberedKeys):
                since = self._gathered(
                    keys, self._since, self._crowd_since if self._crowd else self._seen
                )
            elif self._crowd:
                crowd = self._crowd_since
                since = np.array(
                    [self._since.get(k, crowd if k in self._crowd else self._seen) for k in keys]
                )
            else:
                since = self._gathered(keys, self._since, self._seen)
            return np.asarray(np.maximum(self._seen - since, 0), dtype=np.int64)
        if name == "participated":
            return self._gathered(keys, self._participated, False).astype(bool)
        answers = self._answers.get(name, {})
        width = max((len(v) for v in answers.values() if isinstance(v, list)), default=0)
        return self._gathered(keys, answers, [math.nan] * width if width else math.nan, np.float64)

    @staticmethod
    def _gathered(
        keys: Sequence[str], known: Mapping[str, Any], otherwise: Any, dtype: Any = None
    ) -> NDArray[Any]:
        """Return one value per client; for numbered ones the work grows with those known."""
        if not isinstance(keys, NumberedKeys):
            get = known.get
            return np.array([get(key, otherwise) for key in keys], dtype=dtype)
        values = np.empty((len(keys), *np.shape(otherwise)), dtype or np.asarray(otherwise).dtype)
        values[:] = otherwise
        for place, value in zip(keys.positions(list(known)), known.values(), strict=True):
            if place >= 0:
                values[place] = value
        return values

    def observations(self, keys: Sequence[str], names: frozenset[str]) -> "Observations":
        """Return what a selector may look at: age, participation and the names it needs."""
        return Observations(self, keys, names | {"age", "participated"})

    def state_dict(self) -> dict[str, Any]:
        """Return all that is known."""
        now = self._now
        state: dict[str, Any] = {
            "round": self._round,
            "ages": {key: now - since for key, since in self._since.items()},
            "participated": list(self._participated),
            "picks": dict(self._picks),
            "answers": {name: dict(values) for name, values in self._answers.items()},
            "told-in": {name: dict(rounds) for name, rounds in self._told_in.items()},
        }
        if self._crowd:
            state["crowd"] = {"clients": len(self._crowd), "age": now - self._crowd_since}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._now = self._seen = 0
        self._round = state.get("round")
        self._since = {key: -int(age) for key, age in state["ages"].items()}
        crowd = state.get("crowd", {"clients": 0, "age": 0})
        self._crowd = NumberedKeys(range(int(crowd["clients"])))
        self._crowd_since = -int(crowd["age"])
        self._here = ()
        self._participated = dict.fromkeys(state["participated"], True)
        self._picks = Counter(state["picks"])
        self._answers = {name: dict(values) for name, values in state["answers"].items()}
        rounds = state.get("told-in", {})  # an older version did not keep them
        self._told_in = {name: dict(values) for name, values in rounds.items()}


class Observations(Mapping[str, NDArray[Any]]):
    """Arrays by name, made when they are looked at: most selectors look at few of them."""

    def __init__(self, memory: ClientMemory, keys: Sequence[str], names: frozenset[str]) -> None:
        self._memory = memory
        self._keys = keys
        self._names = names
        self._made: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._memory.values(self._keys, name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)


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
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._learned = None


def _mean(before: float, new: float) -> float:
    return before + _WEIGHT * (new - before)
