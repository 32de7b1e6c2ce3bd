"""How often clients try another cohort, and what one try says about the others (section 4.3)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .rewards import decayed


def exploration_rate(round: int, initial: float = 0.3, decay: float = 0.99) -> float:
    """Return the probability of a random cohort, ``initial * decay ** round``.

    The round is that of the cohort. (Line 29 of algorithm 1, taken literally, would explore ever
    more; the text says less.)

    >>> exploration_rate(0), round(exploration_rate(100), 4)
    (0.3, 0.1098)
    """
    if round < 0:
        raise ValueError(f"round: expected 0 or more, got {round}")
    for name, value in {"initial": initial, "decay": decay}.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}: expected a share from 0 to 1, got {value!r}")
    return initial * decay**round


def predicted(instant: ArrayLike, distance: int, rate: float = 0.2) -> NDArray[np.float64]:
    """Return the reward of a cohort that a client has not tried, after it tried another.

    ``dR / (d + 1)``: the farther away in the tree, the less a bad reward speaks against it (line 25
    and figure 7). It gets the weight of one try and replaces what was predicted before. Added up in
    full, as line 25 has it, it would soon speak more against the cohorts that were not tried than
    what was seen does against those that were, and clients would not leave a cohort that is wrong.

    Parameters
    ----------
    instant : float or array of float
        Reward that the cohort gave which was tried, dR.
    distance : int
        :meth:`forager.selectors.cohorts.tree.CohortTree.distance` of the two.
    rate : float
        Weight of one try.

    Examples
    --------
    >>> predicted(-3.0, distance=1, rate=1.0).item(), predicted(-3.0, distance=2, rate=1.0).item()
    (-1.5, -1.0)
    """
    return decayed(0.0, np.asarray(instant) / (distance + 1), rate)
