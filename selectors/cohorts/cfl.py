"""CFL: a cohort is split in two when its clients pull in different directions.

Sattler, Müller and Samek, 2020: *Clustered Federated Learning*, algorithm 1. Near a stationary
point of the joint loss the mean update is short; if single updates are still long, they disagree.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from cohorts.projection import unit_rows


@dataclass(frozen=True)
class CflRule:
    """When a cohort is split.

    Parameters
    ----------
    mean_norm : float
        The mean update must be shorter than this share of the longest update (epsilon 1). The
        original compares with a constant (0.4), which holds for one model and one learning rate.
    first_round : int
        Rounds of a cohort before it may be split.
    smallest : int
        Participants below which a cohort is not split.
    """

    mean_norm: float = 0.4
    first_round: int = 20
    smallest: int = 3

    def due(self, round: int, norms: ArrayLike, mean_norm: float) -> bool:
        """Return whether to split a cohort after this round.

        >>> CflRule(first_round=0).due(1, [1.0, 1.2, 0.9], mean_norm=0.1)
        True
        """
        lengths = np.asarray(norms, dtype=np.float64)
        longest = float(lengths.max(initial=0.0))
        enough = lengths.size >= self.smallest and round >= self.first_round
        return bool(enough and longest > 0 and mean_norm < self.mean_norm * longest)


def bipartition(updates: ArrayLike) -> NDArray[np.intp]:
    """Return the two parts whose most similar members across are least similar (complete linkage).

    Positions are those of the rows given; mapping them to clients is the caller's.

    >>> bipartition([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]]).tolist()
    [0, 1, 0, 1]
    """
    points = unit_rows(updates)
    if len(points) < 2:
        return np.zeros(len(points), dtype=np.intp)
    distances = np.clip(1 - points @ points.T, 0.0, 2.0)
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(distances, checks=False), "complete")
    parts = fcluster(tree, 2, "maxclust")
    return (parts != parts[0]).astype(np.intp)
