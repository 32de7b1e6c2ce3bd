"""DivFL: the clients whose updates best represent those of all others.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes, 2022: *Diverse Client Selection for Federated
Learning via Submodular Maximization*. If each client is represented by the nearest one of S, the
error of the sum of all updates is at most ``sum_i min_{j in S} ||g_i - g_j||`` (eq. 4), which
greedy facility location makes small. The rule compares sketches of the clients' last updates, and
clients send nothing for it (the paper's variant without overhead). The authors' code begins with a
gradient of every client and searches all clients greedily; here newcomers train first.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from ..data_selectors.facility_location import PairDistances
from .base import Candidates, ClientSelector, Positions, known_and_not

_POOL = 2000  # clients that are represented at a time, drawn from all
_MISSED = 0.1  # chance of missing the best client of a step (epsilon of stochastic greedy)


def representatives(updates: ArrayLike, count: int, rng: np.random.Generator) -> Positions:
    """Return ``count`` rows that are near all others, by stochastic greedy.

    Each step considers only some rows, which varies the choice from round to round.

    >>> rows = [[0.0], [0.1], [5.0], [5.1]]
    >>> np.sort(representatives(rows, 2, np.random.default_rng(0)) // 2).tolist()
    [0, 1]
    """
    rows = np.asarray(updates, dtype=np.float64)
    count = min(count, len(rows))
    if not count:
        return np.empty(0, dtype=np.intp)
    pairs = PairDistances(rows, lambda squared: np.sqrt(squared, out=squared))
    pairs.keep()
    looked_at = math.ceil(len(rows) / count * math.log(1 / _MISSED))
    left, chosen = rng.permutation(len(rows)), list[int]()
    nearest = np.full(len(rows), np.inf)
    for _ in range(count):
        some = rng.permutation(left)[:looked_at]
        reach = np.minimum(pairs.block(some), nearest)
        best = int(some[np.argmin(reach.sum(axis=1))])
        nearest = np.minimum(nearest, pairs.of(best))
        left = left[left != best]
        chosen.append(best)
    return np.array(chosen, dtype=np.intp)


class DivFl(ClientSelector):
    """Clients whose last updates represent those of all; clients without an update come first."""

    needs = frozenset({"update"})

    def select(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        """Return the positions of newcomers, then of representatives."""
        updates = candidates.observed("update")
        known, new = known_and_not(updates)
        first = rng.permutation(new)[:count]
        if first.size == count or not known.size:
            return first
        pool = rng.permutation(known)[: max(_POOL, count)]
        chosen = pool[representatives(updates[pool], count - first.size, rng)]
        return np.concatenate([first, chosen])
