"""Age of information (AoI): how long each client has waited, and rules that choose by age alone.

CosAge, section III: each client has an age that grows by 1 in every round in which it is not
chosen; a *silent ratio* keeps the youngest out of the next rounds. Choosing the oldest is the
baseline "AoI-based prioritization" of section IV. Shuffled turns are ours.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import shares
from .base import Candidates, ClientSelector, Positions, lowest

_SHUFFLE = 1.5  # rounds: who waited a round longer than another usually comes first


def oldest(age: ArrayLike, count: int, rng: np.random.Generator | None = None) -> Positions:
    """Return the positions of the ``count`` oldest, the oldest first.

    Ties go to the lower position or, with a generator, are broken at random.
    """
    return lowest(-checked_ages(age), count, rng)


def next_ages(age: ArrayLike, chosen: ArrayLike) -> NDArray[np.int64]:
    """Return the ages after a round: 0 for those chosen, one more for the others.

    >>> next_ages([0, 3, 1], chosen=[1]).tolist()
    [1, 0, 2]
    """
    ages, positions = checked_ages(age) + 1, np.asarray(chosen)
    if positions.size == 0:
        return ages
    if positions.dtype.kind not in "iu" or positions.min() < 0 or positions.max() >= ages.size:
        raise ValueError(f"chosen: expected positions below {ages.size}, got {positions}")
    ages[positions] = 0
    return ages


def awake(
    age: ArrayLike,
    count: int,
    silent_ratio: float,
    participated: ArrayLike | None = None,
    known: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> NDArray[np.bool_]:
    """Return who may be chosen after the cooldown: all but the youngest ``silent_ratio * U``.

    Only clients that have taken part are silenced: otherwise all clients of the first round and
    every newcomer (age 0) would be. At least ``count`` of the known ones are left, if possible.

    - ``age``: rounds since each of the U clients was last chosen.
    - ``count``: how many will be chosen.
    - ``silent_ratio``: share that is silent, in [0, 1].
    - ``participated``: clients that have been chosen before; all if not given.
    - ``known``: clients that can be chosen at all; all if not given.
    - ``rng``: breaks ties between equal ages; else the lower position is silenced first.

    >>> awake([0, 2, 0, 1], 1, silent_ratio=0.5).tolist()
    [False, True, False, True]
    >>> awake([0, 2, 0, 1], 1, 0.5, participated=[False, True, True, True]).tolist()
    [True, True, False, False]
    """
    shares(silent_ratio=silent_ratio)
    ages = checked_ages(age)
    everyone = np.ones(ages.size, dtype=np.bool_)
    veterans = _flags("participated", participated, everyone)
    left = _flags("known", known, everyone).copy()
    if silent_ratio == 0:
        return left
    silent = _youngest(ages, np.flatnonzero(veterans), math.floor(silent_ratio * ages.size), rng)
    spare = max(0, int(left.sum()) - count)
    left[_youngest(ages, silent[left[silent]], spare, rng)] = False
    return left


def checked_ages(age: ArrayLike) -> NDArray[np.int64]:
    """Return ages as integers; an error that names them if they are not ages."""
    ages = np.asarray(age)
    whole = ages.dtype.kind in "iu" or np.all(np.isfinite(ages) & (ages == np.floor(ages)))
    if ages.ndim != 1 or not whole or np.any(ages < 0):
        raise ValueError(f"age: expected whole numbers from 0 on, one per client, got {ages}")
    return ages.astype(np.int64)


def _flags(name: str, values: ArrayLike | None, default: NDArray[np.bool_]) -> NDArray[np.bool_]:
    flags = default if values is None else np.asarray(values, dtype=np.bool_)
    if flags.shape != default.shape:
        raise ValueError(f"{name}: expected {default.size} values as in age, got {flags.shape}")
    return flags


def _youngest(
    ages: NDArray[np.int64], among: Positions, count: int, rng: np.random.Generator | None
) -> Positions:
    return among[lowest(ages[among], count, rng, ordered=False)]


class OldestFirst(ClientSelector):
    """The clients that have waited longest (AoI, the age of information); ties at random.

    >>> crowd = Candidates(list("abc"), {"age": np.array([0, 2, 1])})
    >>> OldestFirst().select(crowd, 2, np.random.default_rng(0)).tolist()
    [1, 2]
    """

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the oldest, the oldest first."""
        return oldest(candidates.observed("age"), count, rng)


class ShuffledTurns(ClientSelector):
    """Turns by age in an order that varies: the highest ``age + U(0, 1.5)``.

    Strict turns always combine the same clients: two halves, for instance, never meet. A method
    that compares the participants of a round could then never compare the halves.

    >>> rng, age, partners = np.random.default_rng(0), np.zeros(4, dtype=int), set()
    >>> for _ in range(60):
    ...     chosen = ShuffledTurns().select(Candidates(list("abcd"), {"age": age}), 2, rng)
    ...     age = np.where(np.isin(np.arange(4), chosen), 0, age + 1)
    ...     partners.add(tuple(sorted(chosen.tolist())))
    >>> len(partners)
    6
    """

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of those that have waited longest, give or take a turn."""
        ages = checked_ages(candidates.observed("age"))
        return lowest(-(ages + rng.uniform(0.0, _SHUFFLE, ages.size)), count)
