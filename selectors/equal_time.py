"""How much work: as many local steps as let all clients finish together.

With the steps k_i that client i usually takes and the seconds p_i that a step takes it,

    T = median_i p_i k_i,    steps_i = T / p_i,  at least k_i / 10 and at most 2 k_i

(after FedCompass: Li et al., 2024, which bounds the steps and groups clients whose updates then
arrive at about the same time). Slow clients take part with less work instead of holding up all
others or being left out.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LEAST, _MOST = 0.1, 2.0  # of the usual steps


def steps_by_speed(usual: ArrayLike, seconds_per_step: ArrayLike) -> NDArray[np.int64]:
    """Return the steps of each client; the usual ones where the speed is not known (NaN).

    >>> steps_by_speed([10, 10, 10, 10], [1.0, 2.0, 50.0, float("nan")]).tolist()
    [20, 10, 1, 10]
    """
    steps, pace = np.asarray(usual, dtype=np.float64), np.asarray(seconds_per_step, np.float64)
    if not np.isfinite(pace).any():
        return steps.astype(np.int64)
    wanted = np.nanmedian(pace * steps) / np.where(np.isfinite(pace), pace, 1.0)
    wanted = np.where(np.isfinite(pace), wanted, steps)
    return np.maximum(1, np.rint(np.clip(wanted, _LEAST * steps, _MOST * steps))).astype(np.int64)
