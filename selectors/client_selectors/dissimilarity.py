"""Choosing by dissimilarity alone: the baselines that CosAge is compared with in section IV.

The most dissimilar (Fig. 2 and 3), the most dissimilar of the older half and a draw in proportion
to dissimilarity (Fig. 4, eq. 11). Clients of unknown similarity (not finite) are never chosen.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .age import awake
from .base import Candidates, ClientSelector, Positions, draw, lowest


def most_dissimilar(
    similarity: ArrayLike, count: int, rng: np.random.Generator | None = None
) -> Positions:
    """Return the positions of the ``count`` lowest similarities, the lowest first.

    Ties go to the lower position or, with a generator, are broken at random.
    """
    return lowest(np.asarray(similarity, dtype=np.float64), count, rng)


def sampling_probabilities(similarity: ArrayLike) -> NDArray[np.float64]:
    """Return p_i of eq. 11: proportional to the dissimilarity above the smallest one.

    The most similar client has probability 0. If all are alike the draw is uniform. Unknown ones
    have probability 0.
    """
    scores = np.asarray(similarity, dtype=np.float64)
    known = np.isfinite(scores)
    shifted = np.where(known, np.max(scores, initial=-np.inf, where=known) - scores, 0.0)
    if not shifted.any():
        shifted = known.astype(np.float64)
    probabilities: NDArray[np.float64] = shifted / max(shifted.sum(), 1e-300)
    return probabilities


class MostDissimilar(ClientSelector):
    """The clients that are least similar to the last global update; ties at random.

    >>> crowd = Candidates(list("abc"), {"similarity": np.array([0.1, -0.2, 0.8])})
    >>> MostDissimilar().select(crowd, 2, np.random.default_rng(0)).tolist()
    [1, 0]
    """

    needs = frozenset({"similarity"})

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the most dissimilar, the most dissimilar first."""
        return most_dissimilar(candidates.observed("similarity"), count, rng)


class MostDissimilarAfterCooldown(MostDissimilar):
    """The most dissimilar of the older half; only that half is asked (the cyan curve of Fig. 4).

    >>> seen = {"age": [0, 0, 3, 2], "participated": [True] * 4}
    >>> crowd = Candidates(list("abcd"), {name: np.array(v) for name, v in seen.items()})
    >>> MostDissimilarAfterCooldown().shortlist(crowd, 1, np.random.default_rng(0)).tolist()
    [2, 3]
    """

    def __init__(self, silent_ratio: float = 0.5) -> None:
        awake([], 0, silent_ratio)  # refuses what is not a share
        self.silent_ratio = silent_ratio

    def shortlist(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the older half; newcomers are in it, whatever their age."""
        age, participated = candidates.observed("age"), candidates.observed("participated")
        return np.flatnonzero(awake(age, count, self.silent_ratio, participated, rng=rng))


class DissimilaritySampling(ClientSelector):
    """A draw without replacement in proportion to dissimilarity (eq. 11, the purple curve).

    If fewer than ``count`` have a probability above 0, the others follow by position.

    >>> crowd = Candidates(list("abc"), {"similarity": np.array([0.9, 0.9, -0.2])})
    >>> DissimilaritySampling().select(crowd, 2, np.random.default_rng(0)).tolist()
    [2, 0]
    """

    needs = frozenset({"similarity"})

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return positions in the order in which they were drawn."""
        similarity = np.asarray(candidates.observed("similarity"), dtype=np.float64)
        probabilities = sampling_probabilities(similarity)
        return draw(np.where(np.isfinite(similarity), probabilities, np.nan), count, rng)
