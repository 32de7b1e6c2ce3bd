"""How long to wait: a limit learned from the times that clients have needed.

Whoever sets a limit by hand has to know the slowest device that still counts. The times say it:
with the median m of what clients need and their median absolute deviation from it,

    d = max(m + k 1.4826 MAD, 2 m)

where 1.4826 MAD estimates the standard deviation of normal times (Rousseeuw and Croux, 1993) and
ignores how slow the slowest are. The second term keeps devices that are all alike from missing it
by a hair.
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
