"""Choose clients uniformly at random, without replacement."""

import numpy as np
from numpy.typing import NDArray

from .base import Candidates, ClientSelector


class Uniform(ClientSelector):
    """Every client is equally likely.

    >>> Uniform().select(Candidates(list("abcd")), 2, np.random.default_rng(0)).tolist()
    [2, 3]
    """

    def select(
        self, candidates: Candidates, count: int, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """Return positions drawn without replacement, in ascending order."""
        count = min(count, len(candidates))
        return np.sort(rng.choice(len(candidates), size=count, replace=False)).astype(np.intp)
