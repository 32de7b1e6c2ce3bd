"""How much work: clients take more local steps the further they are behind the best.

With the losses l_i of the model on the clients that train, client i takes

    share_i = 1/5 + 4/5 (l_i - min l) / (max l - min l)

of its usual steps (after FLAD: Doriguzzi-Corin and Siracusa, 2024: *FLAD: Adaptive Federated
Learning for DDoS Attack Detection*). There a client takes 1 to 5 epochs of 10 to 1,000 steps, both
linear in its F1 score between the best and the worst of those who train, and the maximum shrinks as
the worst score nears 1. Here the maximum is the usual number of steps, and only steps vary: a run
with ``local-epochs = 5`` has FLAD's 1 to 5 epochs. Unlike F1, a loss has no upper bound: a loss
above twice the median counts as twice the median, or one wild claim would leave all others a fifth.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LEAST = 0.2  # of the usual steps
_MOST_BEHIND = 2.0  # times the median loss


def work_by_loss(losses: ArrayLike) -> NDArray[np.float64]:
    """Return each client's share of its usual steps; all of them if its loss is not known (NaN).

    >>> work_by_loss([0.5, 1.0, 0.75, 40.0, float("nan")]).round(2).tolist()
    [0.2, 0.52, 0.36, 1.0, 1.0]
    >>> work_by_loss([0.7, 0.7]).tolist()
    [1.0, 1.0]
    """
    values = np.asarray(losses, dtype=np.float64)
    known = np.isfinite(values)
    shares = np.ones(values.shape)
    if known.any():
        told = np.minimum(values[known], _MOST_BEHIND * np.median(values[known]))
        behind = told - told.min()
        if behind.any():
            shares[known] = 1 - (1 - _LEAST) * (1 - behind / behind.max())
    return shares
