"""What the server knows of every client it has met: ages, participation, last answers."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_GONE = 5_000  # clients that are remembered though they are not there


class ClientMemory:
    """Observations of clients by key.

    The age of a client starts at zero, grows by one in every round in which it is not chosen, and
    is zero again after one in which it is.

    >>> memory = ClientMemory()
    >>> memory.round_passed("ab", chosen="a")
    >>> memory.round_passed("abc", chosen="c")
    >>> memory.observations("abcd", frozenset())["age"].tolist()
    [1, 2, 0, 0]
    """

    def __init__(self) -> None:
        self._ages: dict[str, int] = {}
        self._participated: set[str] = set()
        self._answers: dict[str, dict[str, Any]] = {}
        self._picks: Counter[str] = Counter()

    def round_passed(self, keys: Collection[str], chosen: Collection[str]) -> None:
        """Let a round pass for all clients known or given; those chosen start again."""
        for key in self._ages:
            self._ages[key] += 1
        for key in keys:
            self._ages.setdefault(key, 1)
        for key in chosen:
            self._ages[key] = 0
        self._participated.update(chosen)
        self._picks.update(chosen)
        here = set(keys)
        if len(self._ages) > _MOST_GONE + 2 * len(here):
            self._forget(here)

    def _forget(self, here: Collection[str]) -> None:
        """Forget those that are not there and have not been chosen for longest."""
        gone = sorted((key for key in self._ages if key not in here), key=lambda k: -self._ages[k])
        for key in gone[: len(gone) - _MOST_GONE // 2]:
            for known in (self._ages, self._picks, *self._answers.values()):
                known.pop(key, None)
            self._participated.discard(key)

    def picked(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Return how often clients have been chosen."""
        return np.array([self._picks[key] for key in keys], dtype=np.int64)

    def learn(self, key: str, name: str, value: Any) -> None:
        """Remember a client's answer, in place of an older one."""
        self._answers.setdefault(name, {})[key] = value

    def knows(self, key: str, name: str) -> bool:
        """Tell whether a client has ever answered this."""
        return key in self._answers.get(name, {})

    def ages(self, keys: Sequence[str]) -> list[int]:
        """Return the ages of clients."""
        return [self._ages.get(key, 0) for key in keys]

    def values(self, keys: Sequence[str], name: str) -> NDArray[Any]:
        """Return one value a client, NaN where it is not known."""
        if name == "age":
            return np.array(self.ages(keys), dtype=np.int64)
        if name == "participated":
            return np.array([key in self._participated for key in keys], dtype=bool)
        answers = self._answers.get(name, {})
        width = max((len(v) for v in answers.values() if isinstance(v, list)), default=0)
        unknown = [math.nan] * width if width else math.nan
        return np.array([answers.get(key, unknown) for key in keys], dtype=np.float64)

    def observations(self, keys: Sequence[str], names: frozenset[str]) -> "Observations":
        """Return what a selector may look at: age, participation and the names it needs."""
        return Observations(self, keys, names | {"age", "participated"})

    def state_dict(self) -> dict[str, Any]:
        """Return all that is known."""
        return {
            "ages": dict(self._ages),
            "participated": sorted(self._participated),
            "picks": dict(self._picks),
            "answers": {name: dict(values) for name, values in self._answers.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._ages = dict(state["ages"])
        self._participated = set(state["participated"])
        self._picks = Counter(state["picks"])
        self._answers = {name: dict(values) for name, values in state["answers"].items()}


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
