"""IFCA: every client trains the model that fits it best (Ghosh et al., 2020, algorithm 1)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def best_models(losses: ArrayLike) -> NDArray[np.intp]:
    """Return for each client the model of lowest loss on its data; ties go to the first.

    Parameters
    ----------
    losses : array, shape (clients, models)
        A loss that is not finite is worse than any other.

    Examples
    --------
    >>> best_models([[0.5, 0.2], [0.1, np.nan], [0.3, 0.3]]).tolist()
    [1, 0, 0]
    """
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 1:
        raise ValueError(f"losses: expected one row a client, one column a model: {values.shape}")
    return np.argmin(np.where(np.isfinite(values), values, np.inf), axis=1)
