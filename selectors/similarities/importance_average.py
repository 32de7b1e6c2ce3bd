"""Importance averaged over rounds, so that noise of one round does not move a client's support.

*Index-Overlap Similarity* (IOS), section 3.1: ``s <- beta s + (1 - beta) s'``, with variance
``(1 - beta) / (1 + beta)`` of that of one estimate (eq. 3). The paper does not say where s starts.
Here it starts at 0: after t rounds all entries are then too small by one factor, ``1 - beta^t``,
and the support is the one of the bias-corrected average. A start at the first estimate would give
that estimate more weight forever.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def averaged(past: ArrayLike, importance: ArrayLike, beta: float) -> NDArray[np.float32]:
    """Return the average after one more estimate, of one client or of one in each row.

    >>> averaged([[2.0, 0.0], [0.0, 0.0]], [[0.0, 4.0], [4.0, 0.0]], beta=0.5).tolist()
    [[1.0, 2.0], [2.0, 0.0]]
    """
    before, estimate = np.asarray(past, np.float32), np.asarray(importance, np.float32)
    return np.asarray(beta * before + np.float32(1 - beta) * estimate)


class ImportanceAverage:
    """Exponential moving average of one client's importance.

    Parameters
    ----------
    beta : float
        Weight of the past, from 0 (only the last round counts) to below 1.

    Attributes
    ----------
    rounds : int
        How many estimates it has seen.

    Examples
    --------
    >>> average = ImportanceAverage(beta=0.5)
    >>> average.update([4.0, 0.0]).tolist()
    [2.0, 0.0]
    >>> average.update([0.0, 4.0]).tolist()
    [1.0, 2.0]
    """

    def __init__(self, beta: float = 0.8) -> None:
        if not 0 <= beta < 1:
            raise ValueError(f"beta: expected a share from 0 to below 1, got {beta!r}")
        self.beta = beta
        self.rounds = 0
        self._average: NDArray[np.float32] | None = None

    @property
    def value(self) -> NDArray[np.float32]:
        """The average so far."""
        if self._average is None:
            raise ValueError("value: no importance has been averaged yet")
        return self._average

    def update(self, importance: ArrayLike) -> NDArray[np.float32]:
        """Take in one round's estimate, flat over the parameters, and return the new average."""
        estimate = np.asarray(importance, dtype=np.float32)
        if estimate.ndim != 1 or not np.isfinite(estimate).all():
            raise ValueError(
                f"importance: expected a flat array of finite numbers, got shape {estimate.shape}"
            )
        past = np.zeros_like(estimate) if self._average is None else self._average
        if past.shape != estimate.shape:
            raise ValueError(
                f"importance: expected {past.size} parameters as before, got {estimate.size}"
            )
        self._average = averaged(past, estimate, self.beta)
        self.rounds += 1
        return self._average

    def state_dict(self) -> dict[str, Any]:
        """Return the average and the number of rounds."""
        return {"rounds": self.rounds, "average": self._average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        average = state["average"]
        self._average = None if average is None else np.array(average, dtype=np.float32)
        self.rounds = int(state["rounds"])
