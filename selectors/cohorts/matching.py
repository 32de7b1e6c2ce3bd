"""Requests of clients to leaves of the tree (Auxo, section 5.1), for very many clients at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .affinity import NO_INDEX, Affinity
from .tree import CohortTree

Positions = NDArray[np.intp]

_GOLDEN = 0.6180339887498949  # its multiples are spread evenly over every interval


def choose_leaves(rewards: ArrayLike, rates: ArrayLike, rng: np.random.Generator) -> Positions:
    """Return a leaf for each client: decaying epsilon-greedy (section 4.3, lines 27 to 33).

    - ``rewards`` (one row per client): the largest is the client's choice; equal ones are drawn
      from.
    - ``rates``: probability of a random leaf instead, for each leaf that is chosen.

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
    """Return how many participants each leaf gets; who gets one more changes with ``turn``."""
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
    """Return the clients of each leaf, in their order."""
    names = np.array([*keys, None], dtype=object)  # one more: keys alone might look like a matrix
    return {leaf: names[:-1][chosen == column].tolist() for column, leaf in enumerate(leaves)}


@dataclass
class Claims:
    """What some clients say about some leaves: one row per client, one column per leaf."""

    rewards: NDArray[np.float32]
    indices: NDArray[np.int16]  # cluster within the leaf; -1 for none
    known: NDArray[np.bool_]  # whether the client trained there or was sorted into it

    @classmethod
    def of(cls, requests: Sequence[Affinity | None], tree: CohortTree) -> "Claims":
        """Return the claims in requests; a client that sent none has no preference."""
        leaves, shape = tree.leaves(), (len(requests), len(tree.leaves()))
        indices = np.full(shape, NO_INDEX, dtype=np.int16)
        blank = cls(np.zeros(shape, dtype=np.float32), indices, np.zeros(shape, dtype=np.bool_))
        for row, request in enumerate(requests):
            if request is not None and request.records:
                records = request.inherited(tree).records
                blank.rewards[row] = [records[leaf].reward for leaf in leaves]
                blank.indices[row] = [records[leaf].index for leaf in leaves]
                blank.known[row] = [records[leaf].known for leaf in leaves]
        return blank
