"""Rules that choose by the loss of the global model on the clients' own data."""

import numpy as np
from numpy.typing import NDArray

from ..checks import at_least
from .base import Candidates, ClientSelector, Positions, draw, lowest


class LocalLoss(ClientSelector):
    """The clients on whose data the current model has the highest loss; ties at random.

    The "local loss" baseline of CosAge, Fig. 3: power-of-choice with every client a candidate.
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


class Flad(ClientSelector):
    """Clients with at least the mean loss; drawn at random if they are too many.

    Doriguzzi-Corin and Siracusa, 2024: *FLAD: Adaptive Federated Learning for DDoS Attack
    Detection*, with the loss in place of their F1 score. In the paper all of them train, longer if
    their loss is higher (``work = 'by-loss'``). Here at most ``count`` train, and at least the two
    clients with the highest losses: the reply of a single client may be unusable.

    >>> crowd = Candidates(list("abcd"), {"loss": np.array([0.1, 0.9, 0.2, 0.6])})
    >>> sorted(Flad().select(crowd, 3, np.random.default_rng(0)).tolist())
    [1, 3]
    """

    needs = frozenset({"loss"})
    takes_fewer = True

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of those who need it, in the order drawn."""
        losses = np.asarray(candidates.observed("loss"), dtype=np.float64)
        known = losses[np.isfinite(losses)]
        least = min(known.mean(), np.sort(known)[-2:][0]) if known.size else 0.0
        in_need = np.isfinite(losses) & (losses >= least * (1 - 1e-9))  # if alike, all train
        return draw(np.where(in_need, 1.0, np.nan), count, rng)


class PowerOfChoice(LocalLoss):
    """The highest losses among ``candidates`` clients drawn at random.

    Cho, Wang, Joshi: *Client Selection in Federated Learning: Convergence Analysis and
    Power-of-Choice Selection Strategies*, section 3. The draw is in proportion to the observation
    ``num-examples``, the samples of the last training. Unknown sizes count as the median of the
    known ones; as long as none is known, the draw is uniform.

    - ``candidates``: clients that are drawn and asked (d); 0 means twice the number to choose.

    >>> crowd = Candidates(list("abcd"), {"num-examples": np.array([0, 9, 0, 9])})
    >>> PowerOfChoice().shortlist(crowd, 1, np.random.default_rng(0)).tolist()
    [1, 3]
    """

    needs = frozenset({"loss", "num-examples"})

    def __init__(self, candidates: int = 0) -> None:
        at_least(0, candidates=candidates)
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
