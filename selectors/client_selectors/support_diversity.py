"""Choose clients whose important parameters overlap least: diversity without a single value.

Index-Overlap Similarity measures how alike clients are; here it is used the other way round.
Clients send MinHash signatures of their supports, of which the server estimates the overlaps.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .base import Candidates, ClientSelector, Positions

_POOL = 10  # times as many as are chosen are compared, the oldest first: all pairs would be slow


def spread_out(signatures: ArrayLike, age: ArrayLike, count: int) -> Positions:
    """Return positions by farthest-first traversal: each new one is least like those before.

    The first is the oldest. The next is always the candidate whose largest estimated Jaccard
    similarity to any of the chosen is smallest; ties go to the older, then to the lower position.
    A client without a signature (NaN) is like nobody.

    Parameters
    ----------
    signatures : array, shape (clients, hashes)
        MinHash signatures; equal entries mean overlap.
    age : array of int
        Rounds since each was last chosen.
    count : int
        How many to choose.

    Examples
    --------
    >>> signatures = [[1, 2, 3], [1, 2, 4], [7, 8, 9], [7, 8, 3]]
    >>> spread_out(signatures, [0, 0, 0, 0], 2).tolist()
    [0, 2]
    """
    rows, ages = np.asarray(signatures, dtype=np.float64), np.asarray(age)
    count = min(count, len(rows))
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    closest = np.zeros(len(rows))  # the largest similarity to one of the chosen
    chosen = [int(np.argmax(ages))]
    while len(chosen) < count:
        np.maximum(closest, (rows == rows[chosen[-1]]).mean(axis=1), out=closest)
        closest[chosen] = np.inf
        best = np.flatnonzero(closest == closest.min())
        chosen.append(int(best[np.argmax(ages[best])]))
    return np.array(chosen, dtype=np.intp)


class SupportDiversity(ClientSelector):
    """Clients whose supports cover each other least, by the signatures that they sent last.

    Of very many candidates those that were not chosen for longest are compared.
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
