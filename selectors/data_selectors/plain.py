"""The simplest rules: samples drawn uniformly, or those nearest to the target."""

from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, check_target
from ..client_selectors.base import lowest


def nearest(gradients: ArrayLike, target: ArrayLike, budget: int) -> NDArray[np.intp]:
    """Return the ``budget`` samples with ``||g_j - target||`` lowest, the nearest first.

    Matching pursuit without a residual: the first choice of the distance rule of *Gradient Coreset
    for Federated Learning*, made as often as the budget allows. A mislabelled sample has a gradient
    unlike the target's and comes late, also when the model has learned little.

    - ``gradients`` (shape (n, d)): one row per sample. Rows that are not finite are never chosen.
    - ``target`` (shape (d,)): what to be near to.
    - ``budget``: how many; if there are fewer samples, all of them. Ties go to the lower index.

    >>> nearest([[0.0, 0.0], [1.0, 1.0], [float("nan"), 1.0], [1.0, 2.0]], [1.0, 1.5], 2).tolist()
    [1, 3]
    """
    rows, goal = np.asarray(gradients), np.asarray(target)
    check_target(rows, goal)
    at_least(0, budget=index(budget))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = rows - goal
        return lowest(np.einsum("ij,ij->i", gaps, gaps), budget)


def uniform(size: int, budget: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return ``budget`` of ``size`` positions in ascending order; all if there are fewer.

    >>> uniform(5, 2, np.random.default_rng(0)).tolist()
    [3, 4]
    >>> uniform(2, 9, np.random.default_rng(0)).tolist()
    [0, 1]
    """
    at_least(0, budget=index(budget))
    return np.sort(rng.choice(size, size=min(budget, size), replace=False)).astype(np.intp)
