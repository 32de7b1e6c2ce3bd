"""How long to wait for replies: a limit learned from the times that clients have needed.

A limit set by hand requires knowing the slowest device that should still count. This one follows
from the times that clients need: with their median m and their median absolute deviation MAD,

    d = max(m + k 1.4826 MAD, 2 m)

where 1.4826 MAD estimates the standard deviation of normally distributed times (Rousseeuw and
Croux, 1993) and does not depend on how slow the slowest are. The second term leaves some time if
all devices are about equally fast.
"""

import numpy as np
from numpy.typing import ArrayLike

_FEWEST = 5  # clients whose times must be known
_SPREAD, _DEVIATIONS = 1.4826, 3.0  # k
_LEAST = 1.0  # second


def learned_deadline(seconds: ArrayLike, most: float) -> float:
    """Return how long to wait, to the millisecond; ``most`` while few are known.

    >>> learned_deadline([4.0, 5.0, 5.0, 6.0, 300.0], most=600.0)
    10.0
    >>> learned_deadline([2.0, 4.0, 6.0, 8.0, 10.0, float("nan")], most=600.0)
    14.896
    >>> learned_deadline([4.0, 5.0], most=600.0)
    600.0
    """
    known = np.asarray(seconds, dtype=np.float64)
    known = known[np.isfinite(known)]
    if known.size < _FEWEST:
        return most
    middle = np.median(known)
    spread = _SPREAD * np.median(np.abs(known - middle))
    wanted = round(max(middle + _DEVIATIONS * spread, 2 * middle), 3)
    return float(np.clip(wanted, min(_LEAST, most), most))
