"""Choose the clients on whose data the global model does worst.

The "local loss" baseline of CosAge, Fig. 3: power-of-choice with every client a candidate.
"""

import numpy as np

from .base import Candidates, ClientSelector, Positions, lowest


class LocalLoss(ClientSelector):
    """The highest loss of the current model on their own data; ties at random.

    Clients whose loss is unknown (not finite) are not chosen.

    >>> crowd = Candidates(list("abc"), {"loss": np.array([0.3, 1.2, 0.7])})
    >>> LocalLoss().select(crowd, 2, np.random.default_rng(0)).tolist()
    [1, 2]
    """

    needs = frozenset({"loss"})

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of the highest losses, the highest first."""
        losses = np.asarray(candidates.observed("loss"), dtype=np.float64)
        return lowest(-losses, count, rng)
