"""Power-of-choice: the highest losses among a few clients drawn at random.

Cho, Wang, Joshi: *Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
Selection Strategies*, section 3. First d candidates are drawn without replacement, in proportion to
the size of their data; these report the loss of the current model; the highest are chosen.
"""

import numpy as np
from numpy.typing import NDArray

from .base import Candidates, Positions, draw
from .local_loss import LocalLoss


class PowerOfChoice(LocalLoss):
    """The highest losses among ``candidates`` clients drawn at random.

    The draw is in proportion to the observation ``num-examples``: what clients trained on last.
    Unknown sizes count as the median of the known ones; the draw is uniform while none is known.

    - ``candidates``: how many are drawn and asked (d); 0 means twice as many as will be chosen.

    >>> crowd = Candidates(list("abcd"), {"num-examples": np.array([0, 9, 0, 9])})
    >>> PowerOfChoice().shortlist(crowd, 1, np.random.default_rng(0)).tolist()
    [1, 3]
    """

    needs = frozenset({"loss", "num-examples"})

    def __init__(self, candidates: int = 0) -> None:
        if candidates < 0:
            raise ValueError(f"candidates: expected 0 or more, got {candidates}")
        self.candidates = candidates

    def shortlist(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the d candidates, never fewer than ``count``."""
        drawn = max(self.candidates or 2 * count, count)
        return np.sort(draw(sizes(candidates), drawn, rng))


def sizes(candidates: Candidates) -> NDArray[np.float64]:
    """Return how much data each has, as far as that is known."""
    if "num-examples" not in candidates.observations:
        return np.ones(len(candidates))
    told = np.asarray(candidates.observed("num-examples"), dtype=np.float64)
    known = np.isfinite(told) & (told >= 0)
    return np.where(known, told, np.median(told[known]) if known.any() else 1.0)
