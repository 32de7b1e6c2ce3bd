"""Requests of clients to leaves of the tree (Auxo, section 5.1), for very many clients at once.

The server keeps the last request of each client in a cache of a few bytes. It may forget: clients
send it again, and an unknown client has no preference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .affinity import NO_INDEX, OWN_SIDE, Feedback

Positions = NDArray[np.intp]

_GOLDEN = 0.6180339887498949  # its multiples are spread evenly over every interval


def choose_leaves(rewards: ArrayLike, rates: ArrayLike, rng: np.random.Generator) -> Positions:
    """Return a leaf for each client: decaying epsilon-greedy (section 4.3, lines 27 to 33).

    Parameters
    ----------
    rewards : array of float, one row per client and one column per leaf
        The largest is the client's choice; equal ones are drawn from.
    rates : array of float
        Probability of a random leaf instead, for each leaf that is chosen.
    rng : Generator

    Examples
    --------
    >>> choose_leaves([[0.1, 0.3], [0.2, 0.0]], [0.0, 0.0], np.random.default_rng(0)).tolist()
    [1, 0]
    """
    values, chances = np.asarray(rewards), np.asarray(rates, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 1 or chances.shape != values.shape[1:]:
        raise ValueError(f"rates: expected one per leaf of {values.shape}, got {chances.shape}")
    chosen = _largest(values, rng)
    curious = np.flatnonzero(rng.random(len(chosen)) < chances[chosen])
    chosen[curious] = rng.integers(values.shape[1], size=curious.size)
    return chosen


def _largest(values: NDArray[Any], rng: np.random.Generator) -> Positions:
    """Return the column of the largest value of each row; of several, one at random."""
    chosen: Positions = np.argmax(values, axis=1)
    best = np.take_along_axis(values, chosen[:, None], axis=1)
    ties = np.zeros(len(values), dtype=np.intp)
    for column in values.T:  # column by column: a matrix of booleans would be slow to add up
        ties += column == best[:, 0]
    torn = np.flatnonzero(ties > 1)
    if torn.size:
        ranks = rng.integers(ties[torn])  # which of the equal ones
        equal = np.cumsum(values[torn] == best[torn], axis=1, dtype=np.int32)
        chosen[torn] = np.argmax(equal > ranks[:, None], axis=1)
    return chosen


def equal_shares(count: int, leaves: int, turn: int = 0) -> list[int]:
    """Return how many participants each leaf gets; who gets one more changes with ``turn``.

    >>> equal_shares(11, 3), equal_shares(11, 3, turn=2), equal_shares(1, 3)
    ([4, 4, 3], [4, 3, 4], [1, 0, 0])
    """
    if count < 0 or leaves < 1:
        raise ValueError(f"count, leaves: expected at least 0 and 1, got {count} and {leaves}")
    share, more = divmod(count, leaves)
    return [share + ((leaf - turn) % leaves < more) for leaf in range(leaves)]


def proportional_shares(count: int, sizes: Sequence[int], turn: int = 0) -> list[int]:
    """Return how many participants each leaf gets in proportion to its size, at most all of it.

    Fractions are rounded up for some leaves and down for others, which change with ``turn``:
    systematic sampling, whose mean over the turns is exact.

    >>> proportional_shares(10, [20, 20, 10])
    [4, 4, 2]
    >>> [proportional_shares(2, [4, 1, 1], turn) for turn in range(3)]
    [[1, 0, 1], [1, 1, 0], [1, 0, 1]]
    """
    if count < 0 or not sizes or min(sizes) < 0 or not sum(sizes):
        raise ValueError(f"count, sizes: expected at least 0 and some, got {count} and {sizes}")
    offset = (turn * _GOLDEN) % 1.0
    ends = np.floor(np.cumsum(sizes) * (count / sum(sizes)) + offset + 1e-9)
    shares = np.diff(ends, prepend=np.floor(offset + 1e-9)).astype(int)
    return [min(int(share), size) for share, size in zip(shares, sizes, strict=True)]


def grouped(keys: Sequence[str], chosen: Positions, leaves: Sequence[str]) -> dict[str, list[str]]:
    """Return the clients of each leaf, in their order.

    >>> grouped(["a", "b", "c"], np.array([1, 0, 1]), ["0.0", "0.1"])
    {'0.0': ['b'], '0.1': ['a', 'c']}
    """
    names = np.array([*keys, None], dtype=object)  # one more: keys alone might look like a matrix
    return {leaf: names[:-1][chosen == column].tolist() for column, leaf in enumerate(leaves)}


@dataclass
class Claims:
    """What some clients say about some leaves: one row per client, one column per leaf.

    Attributes
    ----------
    rewards : array of float32
    indices : array of int16
        Cluster within the leaf; -1 for none.
    known : array of bool
        Whether the client trained there or was sorted into it.
    """

    rewards: NDArray[np.float32]
    indices: NDArray[np.int16]
    known: NDArray[np.bool_]

    @classmethod
    def blank(cls, clients: int, leaves: int) -> "Claims":
        """Return those of clients without a preference."""
        shape = clients, leaves
        indices = np.full(shape, NO_INDEX, dtype=np.int16)
        return cls(np.zeros(shape, dtype=np.float32), indices, np.zeros(shape, dtype=np.bool_))

    def take(self, rows: Positions) -> "Claims":
        """Return a copy of some rows; -1 stands for a client without a preference."""
        blank, there = Claims.blank(len(rows), self.rewards.shape[1]), rows >= 0
        blank.put(np.flatnonzero(there), self, rows[there])
        return blank

    def put(self, rows: Positions, other: "Claims", others: Positions) -> None:
        """Overwrite some rows by rows of another."""
        self.rewards[rows] = other.rewards[others]
        self.indices[rows] = other.indices[others]
        self.known[rows] = other.known[others]

    def split(self, column: int, numbers: Sequence[int]) -> "Claims":
        """Return the claims after a leaf was replaced by children of these numbers (line 22)."""
        own = self.indices[:, column, None] == np.asarray(numbers, dtype=np.int16)
        rewards = self.rewards[:, column, None] + np.float32(OWN_SIDE) * own
        new = Claims(rewards, np.full(own.shape, NO_INDEX, dtype=np.int16), own)
        return Claims(
            *(_spliced(getattr(self, name), column, getattr(new, name)) for name in _PARTS)
        )


_PARTS = ("rewards", "indices", "known")
_POST = np.dtype([("cohort", "i2"), ("reward", "f4"), ("index", "i2"), ("serial", "i4")])


class RequestCache:
    """The last request of each client, as claims about the leaves there are now.

    Parameters
    ----------
    capacity : int
        Of at most this many clients; beyond that, the one silent for longest is forgotten.

    Examples
    --------
    >>> cache = RequestCache()
    >>> claims = Claims.blank(1, 1)
    >>> claims.indices[0, 0] = 1
    >>> cache.tell(["a"], claims)
    >>> cache.split(0, [0, 1])
    >>> cache.of(["a", "stranger"]).rewards.round(1).tolist()
    [[0.0, 0.10000000149011612], [0.0, 0.0]]
    """

    def __init__(self, capacity: int = 1_000_000) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: expected 1 or more, got {capacity}")
        self.capacity = capacity
        self._rows: dict[str, int] = {}  # of each client, the one heard of last at the end
        self._claims = Claims.blank(0, 1)
        self._posts = np.zeros(0, dtype=_POST)  # serial 0: there is none
        self._cohorts: list[str] = []  # that the posts are about, by number

    def __len__(self) -> int:
        return len(self._rows)

    def tell(self, keys: Sequence[str], claims: Claims) -> None:
        """Replace what is known of some clients."""
        rows = np.array([self._row(key) for key in keys], dtype=np.intp)
        self._claims.put(rows, claims, np.arange(len(keys)))

    def _row(self, key: str) -> int:
        """Return the row of a client, which becomes the one heard of last."""
        row = self._rows.pop(key, -1)
        row = self._free_row() if row < 0 else row
        self._rows[key] = row
        return row

    def _free_row(self) -> int:
        if len(self._rows) >= self.capacity:
            row = self._rows.pop(next(iter(self._rows)))
            self._posts[row] = 0
            return row
        row = len(self._rows)
        if row >= len(self._posts):
            size = min(self.capacity, max(64, row + row // 4))
            rows = np.where(np.arange(size) < row, np.arange(size), -1)
            self._claims = self._claims.take(rows)
            self._posts = np.concatenate([self._posts, np.zeros(size - row, dtype=_POST)])
        return row

    def post(self, keys: Sequence[str], found: Sequence[Feedback]) -> None:
        """Keep feedback for some clients that reported, until their next feedback."""
        for key, one in zip(keys, found, strict=True):
            if one.cohort not in self._cohorts:
                self._cohorts.append(one.cohort)
            number, row = self._cohorts.index(one.cohort), self._rows.get(key, -1)
            if row >= 0:  # else there are more participants than the cache holds
                self._posts[row] = (number, one.reward, one.index, one.serial)

    def feedback(self, key: str) -> Feedback | None:
        """Return the feedback kept for a client, if there is some."""
        row = self._rows.get(key, -1)
        if row < 0 or self._posts[row]["serial"] == 0:
            return None
        number, reward, index, serial = self._posts[row].item()
        return Feedback(self._cohorts[number], reward, index, serial)

    def of(self, keys: Sequence[str]) -> Claims:
        """Return a copy of what some clients said last."""
        return self._claims.take(self._rows_of(keys))

    def rewards_of(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """Return only the rewards of what some clients said last."""
        rows = self._rows_of(keys)
        known = self._claims.rewards
        if len(known) == 0:
            return np.zeros((len(rows), known.shape[1]), dtype=np.float32)
        rewards = known[rows]
        rewards[rows < 0] = 0
        return rewards

    def _rows_of(self, keys: Sequence[str]) -> Positions:
        found = map(self._rows.get, keys, repeat(-1))  # faster than a loop, for a million keys
        return np.fromiter(found, dtype=np.intp, count=len(keys))

    def split(self, column: int, numbers: Sequence[int]) -> None:
        """Follow the split of the leaf of that column."""
        self._claims = self._claims.split(column, numbers)

    def nbytes(self) -> int:
        """Return the bytes of claims and feedback, besides the names of the clients."""
        return sum(int(getattr(self._claims, name).nbytes) for name in _PARTS) + self._posts.nbytes

    def state_dict(self) -> dict[str, Any]:
        """Return the clients, the one not heard of for longest first, and all about them."""
        rows = np.array(list(self._rows.values()), dtype=np.intp)
        kept, posts = self._claims.take(rows), self._posts[rows]
        state = {"keys": list(self._rows), "cohorts": list(self._cohorts)}
        state |= {name: getattr(kept, name) for name in _PARTS}
        return state | {"posts": {name: posts[name].copy() for name in _POST.names or ()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        rewards = np.array(state["rewards"], dtype=np.float32)
        indices = np.array(state["indices"], dtype=np.int16)
        self._claims = Claims(rewards, indices, np.array(state["known"], dtype=np.bool_))
        self._rows = {str(key): row for row, key in enumerate(state["keys"])}
        self._cohorts = [str(cohort) for cohort in state["cohorts"]]
        self._posts = np.zeros(len(self._rows), dtype=_POST)
        for name in _POST.names or ():
            self._posts[name] = state["posts"][name]


def _spliced(old: NDArray[Any], column: int, new: NDArray[Any]) -> NDArray[Any]:
    """Return a matrix with one column replaced by several."""
    return np.concatenate([old[:, :column], new, old[:, column + 1 :]], axis=1)
