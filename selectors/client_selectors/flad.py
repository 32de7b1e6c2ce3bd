"""FLAD: those train on whose data the model does worse than on average.

Doriguzzi-Corin and Siracusa, 2024: *FLAD: Adaptive Federated Learning for DDoS Attack Detection*,
algorithm 1, with the loss as the metric. In the paper the worst also train for more epochs; here
all train as long as the run says.
"""

import numpy as np

from .base import Candidates, ClientSelector, Positions, lowest


class Flad(ClientSelector):
    """Clients with at least the mean loss, the highest first; fewer than may be, if fewer have it.

    >>> crowd = Candidates(list("abcd"), {"loss": np.array([0.1, 0.9, 0.2, 0.6])})
    >>> Flad().select(crowd, 3, np.random.default_rng(0)).tolist()
    [1, 3]
    """

    needs = frozenset({"loss"})
    takes_fewer = True

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of those who need it most."""
        losses = np.asarray(candidates.observed("loss"), dtype=np.float64)
        known = losses[np.isfinite(losses)]
        mean = known.mean() if known.size else 0.0
        in_need = losses >= mean * (1 - 1e-9)  # rounding: if all are alike, all train
        return lowest(np.where(in_need, -losses, np.nan), count, rng)
