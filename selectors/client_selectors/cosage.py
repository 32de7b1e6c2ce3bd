"""CosAge: clients that have waited long and whose updates differ.

Asgari, Rini, Munari: *CosAge: Federated Learning with Gradient Summaries for Centralized Client
Selection*, section III. In phase 2 of a round every eligible client reports one number, the
similarity of its proxy update to the last global update (eq. 7 to 9, in
``similarities/power_norm.py``). In phase 3 (the policy of eq. 4) the server

1. silences the youngest ``silent_ratio * U`` clients (the cooldown);
2. ranks the others by dissimilarity, the most dissimilar first;
3. cuts the ranking into S bins of equal size, the larger ones first;
4. takes the client of largest age from each bin.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least
from .age import awake, checked_ages
from .base import Candidates, ClientSelector, Positions


def cosage(
    similarity: ArrayLike,
    age: ArrayLike,
    count: int,
    silent_ratio: float = 0.0,
    participated: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> Positions:
    """Return the positions of the clients that train, the one of the most dissimilar bin first.

    - ``similarity``: to the last global update, one per client. What is not finite is unknown: not
      eligible.
    - ``age``: rounds since each client was last chosen.
    - ``count``: how many to choose (S); if fewer are eligible, all of them.
    - ``silent_ratio``: share of the clients that the cooldown silences;
      :func:`selectors.client_selectors.age.awake`.
    - ``participated``: clients chosen before, which can be silenced; all if not given.
    - ``rng``: breaks ties at random; else they go to the lower position.

    Two bins: positions 2, 1 and 4 are the most dissimilar, 0 and 3 the least.

    >>> similarity, age = [0.9, 0.1, -0.5, 0.8, 0.3], [1, 2, 0, 4, 2]
    >>> cosage(similarity, age, count=2).tolist()
    [1, 3]
    >>> cosage(similarity, age, count=2, silent_ratio=0.6).tolist()  # 0, 1 and 2 are silent
    [4, 3]
    """
    scores, ages = np.asarray(similarity, dtype=np.float64), checked_ages(age)
    if scores.shape != ages.shape:
        raise ValueError(f"similarity: expected {ages.size} values as in age, got {scores.shape}")
    at_least(0, count=count)
    eligible = np.flatnonzero(
        awake(ages, count, silent_ratio, participated, known=np.isfinite(scores), rng=rng)
    )
    if eligible.size == scores.size:  # the usual case: nothing to copy
        ranking = most_dissimilar_first(scores, rng)
    else:
        ranking = eligible.take(most_dissimilar_first(scores.take(eligible), rng))
    return oldest_of_each_bin(ranking, ages, min(count, ranking.size))


def most_dissimilar_first(
    scores: NDArray[np.float64], rng: np.random.Generator | None = None
) -> Positions:
    """Return all positions by rising similarity; ties by position or, with ``rng``, at random."""
    ranking = np.argsort(scores)
    ranked = scores.take(ranking)
    rises = ranked[1:] != ranked[:-1]
    if rises.all():
        return ranking
    # A stable argsort would cost four times the plain one. Instead, put ties in order by sorting
    # whole numbers: the bits of a key are the tie's number, random bits, and the position.
    bits = scores.size.bit_length()
    keys = np.zeros(scores.size, dtype=np.int64)
    np.cumsum(rises, out=keys[1:])
    keys <<= 63 - bits
    keys |= ranking
    if rng is not None:
        keys |= rng.integers(1 << (63 - 2 * bits), size=scores.size) << bits
    keys.sort()
    keys &= (1 << bits) - 1
    return keys.astype(np.intp, copy=False)


def oldest_of_each_bin(ranking: Positions, ages: NDArray[np.int64], bins: int) -> Positions:
    """Return the oldest client of each of ``bins`` equal parts of a ranking.

    Of several, the one that is ranked first: the most dissimilar.
    """
    if bins == 0:
        return ranking[:0]
    size, larger = divmod(ranking.size, bins)
    sizes = np.full(bins, size)
    sizes[:larger] += 1  # as numpy.array_split does
    starts = np.cumsum(sizes) - sizes
    # In the smallest type that holds them: looking up a million is then twice as fast.
    ranked = ages.astype(np.min_scalar_type(ages.max())).take(ranking)
    of_largest_age = np.repeat(np.maximum.reduceat(ranked, starts), sizes) == ranked
    hits = np.flatnonzero(of_largest_age)
    chosen: Positions = ranking[hits[np.searchsorted(hits, starts)]]
    return chosen


class CosAge(ClientSelector):
    """The oldest client of each bin of dissimilarity, after a cooldown.

    The cooldown is in :meth:`shortlist`: silent clients are not even asked for their summary.

    - ``silent_ratio``: share of the clients that are silent: those that trained most recently.

    >>> seen = {"age": [0, 0, 3, 2], "participated": [True] * 4}
    >>> crowd = Candidates(list("abcd"), {name: np.array(v) for name, v in seen.items()})
    >>> CosAge(silent_ratio=0.5).shortlist(crowd, 1, np.random.default_rng(0)).tolist()
    [2, 3]
    """

    needs = frozenset({"similarity"})

    def __init__(self, silent_ratio: float = 0.0) -> None:
        awake([], 0, silent_ratio)  # refuses what is not a share
        self.silent_ratio = silent_ratio

    def shortlist(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the clients that are eligible: asked for a summary."""
        age, participated = candidates.observed("age"), candidates.observed("participated")
        return np.flatnonzero(awake(age, count, self.silent_ratio, participated, rng=rng))

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the oldest of each bin, among those that were asked and answered."""
        similarity, age = candidates.observed("similarity"), candidates.observed("age")
        return cosage(similarity, age, count, rng=rng)
