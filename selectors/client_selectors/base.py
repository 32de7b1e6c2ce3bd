"""The base class of client selectors, and two ways of choosing that several of them share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least
from ..stateful import Stateful

Positions = NDArray[np.intp]


@dataclass(frozen=True)
class Candidates:
    """The clients to choose from, in a fixed order, and what is known about them.

    >>> Candidates(["a", "b"], {"age": np.array([2, 0])}).take(np.array([0])).keys
    ['a']
    """

    keys: Sequence[str]  # stable names of the clients
    # One value per client each, in the order of the keys. Always there: ``age`` (rounds since it
    # was last chosen) and ``participated`` (was it ever chosen?). If the selector needs them:
    # ``similarity`` to the last global update, ``loss``, ``histogram`` (label counts, one row per
    # client), ``utility``, ``seconds`` and ``num-examples`` of the last training, its ``update``
    # (a sketch) and ``bias-update`` (of the output layer), one row per client. NaN means unknown.
    observations: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def observed(self, name: str) -> NDArray[Any]:
        """Return one observation of all candidates.

        >>> Candidates(["a"], {"age": np.array([2])}).observed("loss")
        Traceback (most recent call last):
        ValueError: observation 'loss' is missing; there are: age
        """
        if name not in self.observations:
            there = ", ".join(sorted(self.observations)) or "none"
            raise ValueError(f"observation {name!r} is missing; there are: {there}")
        values = np.asarray(self.observations[name])
        if len(values) != len(self):
            raise ValueError(f"observation {name!r}: {len(values)} values, {len(self)} candidates")
        return values

    def take(self, positions: Positions) -> "Candidates":
        """Return some of the candidates, with what is known about them."""
        observations = {k: np.asarray(v)[positions] for k, v in self.observations.items()}
        return Candidates(list(map(self.keys.__getitem__, positions.tolist())), observations)


class ClientSelector(Stateful):
    """Chooses clients. Stateless selectors override only :meth:`select`.

    - ``needs``: observations that the rule uses, besides ``age`` and ``participated``.
    - ``oracle``: whether it uses information that no real server has.
    - ``takes_fewer``: whether it may choose fewer clients than ``count``.

    >>> class Last(ClientSelector):
    ...     def select(self, candidates, count, rng):
    ...         return np.arange(len(candidates))[-count:]
    >>> Last().select(Candidates(list("abc")), 2, np.random.default_rng(0)).tolist()
    [1, 2]
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    oracle: ClassVar[bool] = False
    takes_fewer: ClassVar[bool] = False

    def asks(self) -> bool:
        """Return whether to ask clients for new observations in this round."""
        return True

    def shortlist(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the clients to ask for a new observation; by default, all.

        :meth:`select` gets those that answered.
        """
        return np.arange(len(candidates))

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of at most ``count`` different candidates."""
        raise NotImplementedError


def lowest(
    scores: ArrayLike, count: int, rng: np.random.Generator | None = None, ordered: bool = True
) -> Positions:
    """Return the positions of the ``count`` lowest scores, the lowest first.

    Scores that are not finite are unknown and never chosen. Ties go to the lower position or, with
    a generator, are broken at random. ``ordered=False`` spares the sorting of what was chosen.

    >>> lowest([3, 1, np.nan, 1, 0], 2).tolist()
    [4, 1]
    """
    at_least(0, count=count)
    scores = np.asarray(scores)
    known = np.flatnonzero(np.isfinite(scores)) if count else np.empty(0, dtype=np.intp)
    count = min(count, known.size)
    if count == 0:
        return known[:0]
    values = scores[known]
    limit = np.partition(values, count - 1)[count - 1]
    below, ties = np.flatnonzero(values < limit), np.flatnonzero(values == limit)
    if rng is not None:
        ties = rng.permutation(ties)
        below = rng.permutation(below) if ordered else below
    chosen = np.concatenate([below, ties[: count - below.size]])
    if ordered:
        chosen = chosen[np.argsort(values[chosen], kind="stable")]
    positions: Positions = known[chosen]
    return positions


def draw(weights: ArrayLike, count: int, rng: np.random.Generator) -> Positions:
    """Return ``count`` positions, drawn one after the other in proportion to their weights.

    Without replacement, in the order drawn. Those of weight zero come last, the lower position
    first; those of unknown weight (NaN) never.

    >>> draw([0.0, 5.0, 0.0, np.nan], 2, np.random.default_rng(0)).tolist()
    [1, 0]
    """
    weights = np.asarray(weights, dtype=np.float64)
    longest = np.finfo(np.float64).max
    # A race: waiting times with these rates end in exactly that order.
    waits = np.where(np.isnan(weights), np.nan, longest)
    with np.errstate(over="ignore"):  # a tiny weight waits very long, but not as long as none
        np.divide(rng.exponential(size=weights.shape), weights, out=waits, where=weights > 0)
    return lowest(np.where(weights > 0, np.minimum(waits, longest / 2), waits), count)


def known_and_not(rows: NDArray[Any]) -> tuple[Positions, Positions]:
    """Return the positions of the clients of which an observation is known, and of the others."""
    unknown = np.isnan(rows if rows.ndim > 1 else rows[:, None]).any(axis=1)
    return np.flatnonzero(~unknown), np.flatnonzero(unknown)
