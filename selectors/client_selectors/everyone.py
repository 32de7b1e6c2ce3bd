"""Choose every client, whatever the count."""

import numpy as np
from numpy.typing import NDArray

from .base import Candidates, ClientSelector


class Everyone(ClientSelector):
    """All candidates take part; ``count`` is how many there are.

    >>> Everyone().select(Candidates(list("abc")), 3, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """

    def select(
        self, candidates: Candidates, count: int, rng: np.random.Generator
    ) -> NDArray[np.intp]:
        """Return all positions, or the first ``count`` if the caller allows fewer."""
        return np.arange(min(count, len(candidates)))
