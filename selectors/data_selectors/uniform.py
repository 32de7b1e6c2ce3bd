"""Choose samples uniformly at random, without replacement."""

from operator import index

import numpy as np
from numpy.typing import NDArray


def uniform(size: int, budget: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return ``budget`` of ``size`` positions in ascending order; all if there are fewer.

    >>> uniform(5, 2, np.random.default_rng(0)).tolist()
    [3, 4]
    >>> uniform(2, 9, np.random.default_rng(0)).tolist()
    [0, 1]
    """
    if index(budget) < 0:
        raise ValueError(f"budget: expected 0 or more, got {budget}")
    return np.sort(rng.choice(size, size=min(budget, size), replace=False)).astype(np.intp)
