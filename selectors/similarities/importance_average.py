"""Importance averaged over rounds, which keeps the noise of one round out of a client's support.

*Index-Overlap Similarity* (IOS), section 3.1: ``s <- beta s + (1 - beta) s'``, with variance
``(1 - beta) / (1 + beta)`` of that of one estimate (eq. 3). The paper does not say where s starts.
Here it starts at 0: after t rounds all entries are then too small by one factor, ``1 - beta^t``,
and the support is the one of the bias-corrected average. A start at the first estimate would give
that estimate more weight forever.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def averaged(past: ArrayLike, importance: ArrayLike, beta: float) -> NDArray[np.float32]:
    """Return the average after one more estimate, of one client or of one in each row.

    It begins with zeros; ``beta`` is the weight of the past, from 0 to below 1.

    >>> averaged([[2.0, 0.0], [0.0, 0.0]], [[0.0, 4.0], [4.0, 0.0]], beta=0.5).tolist()
    [[1.0, 2.0], [2.0, 0.0]]
    """
    before, estimate = np.asarray(past, np.float32), np.asarray(importance, np.float32)
    if before.shape != estimate.shape or not np.isfinite(estimate).all():
        raise ValueError(
            f"importance: expected finite numbers of shape {before.shape} as before, got "
            f"{estimate.shape}"
        )
    return np.asarray(beta * before + np.float32(1 - beta) * estimate)
