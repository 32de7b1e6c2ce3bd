"""Choose clients whose important parameters overlap least; clients send no values.

Index-Overlap Similarity (IOS) finds similar clients; this rule uses it to find dissimilar ones.
Clients send MinHash signatures of their supports, or of their largest changes with signs. From
these the server estimates the overlaps, after subtracting how common each index is.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .base import Candidates, ClientSelector, Positions

_POOL = 10  # times as many as are chosen are compared, the oldest first: all pairs would be slow


def spread_out(signatures: ArrayLike, age: ArrayLike, count: int) -> Positions:
    """Return positions by farthest-first traversal: each new one is least like those before.

    The first is the oldest. The next is always the candidate whose largest similarity to any of the
    chosen is smallest; ties go to the older, then to the lower position. A client without a
    signature (NaN) is similar to none.

    The share of places at which two signatures agree is the scalar product of two vectors that mark
    which value stands at which place. The similarity is the cosine of these after subtracting how
    common each value is among the candidates.

    - ``signatures`` (shape (clients, hashes)): MinHash signatures; equal entries mean overlap.
    - ``age``: rounds since each was last chosen.
    - ``count``: how many to choose.

    >>> signatures = [[1, 2, 3], [1, 2, 4], [7, 8, 9], [7, 8, 3]]
    >>> spread_out(signatures, [0, 0, 0, 0], 2).tolist()
    [0, 2]
    """
    rows, ages = np.asarray(signatures, dtype=np.float64), np.asarray(age)
    count = min(count, len(rows))
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    unknown = np.asarray(np.isnan(rows).any(axis=1))
    shared = np.where(unknown, 0.0, _commonness(rows))
    mean = shared[~unknown].mean() if not unknown.all() else 0.0
    lengths = np.sqrt(np.clip(1 - 2 * shared + mean, 0.0, None))
    closest = np.full(len(rows), -1.0)  # the largest similarity to one of the chosen
    chosen = [int(np.argmax(ages))]
    while len(chosen) < count:
        last = chosen[-1]
        if not unknown[last]:
            products = (rows == rows[last]).mean(axis=1) - shared - shared[last] + mean
            both = lengths * lengths[last]  # near 0 if one of them is just the average
            similar = np.divide(products, both, out=0 * products, where=both > 1e-9)
            np.maximum(closest, np.where(unknown, -1.0, similar), out=closest)
        closest[chosen] = np.inf
        best = np.flatnonzero(closest == closest.min())
        chosen.append(int(best[np.argmax(ages[best])]))
    return np.array(chosen, dtype=np.intp)


def _commonness(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean share of places at which each row agrees with all rows that are known."""
    known = np.count_nonzero(~np.isnan(rows).any(axis=1))
    total = np.zeros(len(rows))
    for place in rows.T:
        _, which, counts = np.unique(place, return_inverse=True, return_counts=True)
        total += counts[which]
    return np.asarray(total / (max(1, known) * rows.shape[1]))


class SupportDiversity(ClientSelector):
    """Clients whose supports overlap least, judged by their last signatures.

    Of very many candidates, only those that have waited longest are compared.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"signature"})

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of ``count`` candidates, in the order chosen."""
        signatures = candidates.observed("signature")
        if signatures.ndim == 1:  # nobody has sent one yet
            signatures = np.full((len(candidates), 1), np.nan)
        order = rng.permutation(len(candidates))  # so that ties are broken at random
        ages = candidates.observed("age")[order]
        pool = np.argsort(-ages, kind="stable")[: _POOL * count]
        return order[pool[spread_out(signatures[order[pool]], ages[pool], count)]]
