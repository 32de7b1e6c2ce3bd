"""What the server knows of every client it has met: ages, participation, last answers."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        """Take back what :meth:`state_dict` returned."""
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
