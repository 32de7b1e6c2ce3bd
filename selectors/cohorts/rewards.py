"""How well a client fits a cohort (Auxo, section 4.3)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import shares

Floats = NDArray[np.float64]


def instant_reward(distances: ArrayLike) -> Floats:
    """Return ``1 - D / (mean(D) + std(D))``, the reward of each participant of a round.

    Outliers have a negative reward: they are farther from the centre than the mean distance plus
    one (population) standard deviation. If all lie in the centre, the reward is one.

    - ``distances``: of the participants' updates to the centre of the cohort (D).

    >>> instant_reward([1.0, 1.0, 4.0]).round(3).tolist()  # mean 2, deviation 1.414
    [0.707, 0.707, -0.172]
    >>> instant_reward([0.0, 0.0]).tolist()
    [1.0, 1.0]
    """
    lengths = np.asarray(distances, dtype=np.float64)
    if lengths.ndim != 1 or not np.all(np.isfinite(lengths) & (lengths >= 0)):
        raise ValueError("distances: expected finite numbers from 0 on, one per participant")
    if lengths.size == 0:
        return lengths.copy()
    limit = lengths.mean() + lengths.std()
    return np.ones_like(lengths) if limit == 0 else 1 - lengths / limit


def decayed(reward: ArrayLike, instant: ArrayLike, rate: float = 0.2) -> Floats:
    """Return ``R = rate * dR + (1 - rate) * R``, the reward after a round (section 4.3)."""
    shares(rate=rate)
    before, new = np.asarray(reward, dtype=np.float64), np.asarray(instant, dtype=np.float64)
    return np.asarray(rate * new + (1 - rate) * before)


def known_centre(points: Floats, known: NDArray[np.bool_]) -> Floats:
    """Return where the cohort is: the mean of its known members, of everyone if there is one."""
    members = points[known] if np.count_nonzero(known) >= 2 else points
    centre: Floats = members.mean(axis=0)
    return centre


def predicted(before: float, instant: float, distance: int) -> float:
    """Return the reward of a cohort that a client has not tried, after it tried another.

    ``R + dR / (d + 1)`` (ExploreReward, line 25): less, the farther away it is in the tree.

    - ``before``: what was expected of it so far, R.
    - ``instant``: reward that the cohort gave which was tried, dR.
    - ``distance``: :func:`forager.selectors.cohorts.tree.path_distance` of the two.

    Figure 7:

    >>> predicted(0.0, -3.0, distance=1), predicted(0.0, -3.0, distance=2)
    (-1.5, -1.0)
    """
    return before + instant / (distance + 1)
