"""CRUST: medoids of the gradients, on which a network does not memorise wrong labels.

Mirzasoleiman, Cao, Leskovec: *Coresets for Robust Training of Deep Neural Networks against Noisy
Labels*, 2020.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .facility_location import Distances, PairDistances, Positions, finite_rows, greedy_medoids


def crust(gradients: ArrayLike, budget: int, radius: float) -> Positions:
    """Return medoids of the gradients, where only distances within a radius count.

    Greedy maximisation of ``sum_i max_{j in S} (d_0 - d_ij)`` with Euclidean distances of
    gradients. Here the constant d_0 is the radius, and what is farther counts as not covered at
    all: a mislabelled sample far from all others is worth little. With a radius larger than all
    distances this is exactly the paper's rule.

    - ``gradients`` (shape (n, d)): one row per sample. Rows that are not finite are neither chosen
      nor covered.
    - ``budget``: how many; if there are fewer samples, all of them. Ties go to the lower index.
    - ``radius``: distance from which a sample is not covered.

    The far sample is not worth a place; with a large radius it is.

    >>> gradients = [[0.0], [0.1], [0.2], [5.0], [5.1], [99.0]]
    >>> crust(gradients, 2, radius=1.0).tolist(), crust(gradients, 2, radius=1000.0).tolist()
    ([1, 3], [3, 5])
    """
    if not radius > 0:
        raise ValueError(f"radius: expected a number above 0, got {radius!r}")

    def within_radius(squared: Distances) -> Distances:
        np.sqrt(squared, out=squared)
        return np.minimum(squared, radius, out=squared)

    return greedy_medoids(gradients, budget, within_radius)


def neighbour_counts(gradients: ArrayLike, chosen: Positions, radius: float) -> NDArray[np.int64]:
    """Return how many samples are within the radius of each chosen one, itself too: its weight."""
    rows, usable = finite_rows(gradients)
    if len(chosen) == 0:
        return np.zeros(0, dtype=np.int64)
    pairs = PairDistances(rows, np.sqrt)
    places = np.searchsorted(usable, chosen)
    counts = [np.count_nonzero(pairs.of(place) < radius) for place in places]
    return np.array(counts, dtype=np.int64)
