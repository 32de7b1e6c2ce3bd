"""Clients that no cohort knows: where they start, if they are asked.

Auxo sends a client that it knows nothing about to any cohort and lets it learn from rewards. A
client whose replies always come too late never gets one. Such clients can be asked, once after
a split, how well each cohort's model fits their data, as IFCA asks everybody in every round.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .affinity import OWN_SIDE
from .ifca import best_model
from .matching import Claims


def undecided(claims: Claims) -> NDArray[np.bool_]:
    """Return who trained with no leaf that there is and prefers none to all the others.

    >>> claims = Claims.blank(3, 2)
    >>> claims.known[0, 1] = True
    >>> claims.rewards[1] = [0.1, 0.0]
    >>> undecided(claims).tolist()
    [False, False, True]
    """
    best = claims.rewards == claims.rewards.max(axis=1, keepdims=True)
    return np.asarray(~claims.known.any(axis=1) & (np.count_nonzero(best, axis=1) > 1))


def prefer_best(claims: Claims, losses: ArrayLike) -> None:
    """Let clients prefer the leaf whose model has the lowest loss on their data.

    It counts as much as the side of a split that a client lies in. What the client finds out by
    training there replaces it.

    Parameters
    ----------
    claims : Claims
        Changed in place.
    losses : array of float, one row a client and one column a leaf
        Not a number where it is not known.

    Examples
    --------
    >>> claims = Claims.blank(2, 2)
    >>> prefer_best(claims, [[0.9, 0.1], [np.nan, np.nan]])
    >>> claims.rewards.round(1).tolist()
    [[0.0, 0.10000000149011612], [0.0, 0.0]]
    """
    best = best_model(losses)
    if np.shape(losses) != claims.rewards.shape:
        raise ValueError(f"losses: expected {claims.rewards.shape}, got {np.shape(losses)}")
    told = np.flatnonzero(best >= 0)
    highest = claims.rewards[told].max(axis=1)
    claims.rewards[told, best[told]] = highest + np.float32(OWN_SIDE)
