"""Fed-CBS: sets of clients whose pooled classes are balanced.

Zhang et al., 2023: *Fed-CBS: A Heterogeneity-Aware Client Sampling Mechanism for Federated Learning
via Class-Imbalance Reduction*. The quadratic class-imbalance degree of a set M of clients is
``QCID(M) = sum_b (share of class b - 1/B)^2`` over their pooled data. Clients are drawn one after
the other, with a higher probability if they make the set more balanced. In the paper exponents grow
with the size of the set; here they are 1, 2, 3, ..., as in public implementations.

In the paper the server learns scalar products of label counts under homomorphic encryption. Here
clients send the counts in the clear, in simulation only.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least
from .base import Candidates, ClientSelector, Positions

Floats = NDArray[np.float64]

_POOL = 5000  # clients that are compared at a time, drawn from all
_BALANCED = 1e-9  # QCID below which sets are alike


def imbalance(pooled: ArrayLike, counts: ArrayLike) -> Floats:
    """Return the QCID of the pool with each client's data added; 1 if there are no data."""
    rows, base = np.asarray(counts, dtype=np.float64), np.asarray(pooled, dtype=np.float64)
    squares = np.einsum("ij,ij->i", rows, rows) + 2 * rows @ base + base @ base
    totals = rows.sum(axis=1) + base.sum()
    found = np.divide(squares, totals**2, out=np.full(len(rows), np.inf), where=totals > 0)
    return np.asarray(np.clip(found - 1 / max(1, rows.shape[1]), 0.0, 1.0))


class FedCbs(ClientSelector):
    """The m-th client is drawn in proportion to ``QCID^-m`` of the set with it.

    The first client is drawn in proportion to ``1 / QCID + exploration * sqrt(3 ln t / (2 n))``,
    where n is how often it was chosen in the t rounds so far.

    >>> crowd = Candidates(list("abc"), {"histogram": np.array([[90, 0], [89, 1], [0, 90]])})
    >>> chosen = FedCbs().select(crowd, 2, np.random.default_rng(0))
    >>> 2 in chosen
    True
    """

    remembers = ("_round", "_times")

    needs = frozenset({"histogram"})
    oracle = True

    def __init__(self, exploration: float = 10.0) -> None:
        at_least(0, exploration=exploration)
        self.exploration = exploration
        self._round = 0
        self._times: dict[str, int] = {}

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return positions in the order in which they were drawn."""
        self._round += 1
        count = min(count, len(candidates))
        pool = rng.permutation(len(candidates))[: max(_POOL, count)]
        keys = [candidates.keys[i] for i in pool.tolist()]
        counts = np.nan_to_num(np.asarray(candidates.observed("histogram"), np.float64)[pool])
        counts = counts.reshape(len(pool), -1 if counts.size else 1)
        times = np.array([1 + self._times.get(key, 0) for key in keys], dtype=np.float64)
        bonus = self.exploration * np.sqrt(1.5 * np.log(self._round) / times)
        pooled, left, chosen = np.zeros(counts.shape[1]), np.ones(len(pool), dtype=bool), []
        for number in range(1, count + 1):
            qcid = np.maximum(imbalance(pooled, counts), _BALANCED)
            odds = np.log(1 / qcid + bonus) if number == 1 else -number * np.log(qcid)
            # The largest of odds with Gumbel noise is a draw in proportion to exp(odds).
            race = np.where(left, odds + rng.gumbel(size=len(pool)), -np.inf)
            chosen.append(place := int(np.argmax(race)))
            pooled, left[place] = pooled + counts[place], False
        here = set(candidates.keys)
        self._times = {key: n for key, n in self._times.items() if key in here}
        for place in chosen:
            self._times[keys[place]] = self._times.get(keys[place], 0) + 1
        return pool[np.array(chosen, dtype=np.intp)]
