"""A mean in which no update is longer than the median: robust, and fair to the sizes of sites.

Median and Krum ignore how many samples a site has. Here every site counts by its samples, and only
the direction of a long update counts:

    u = sum_i w_i u_i min(1, c / |u_i|) / sum_i w_i,   c = median_i |u_i|,
    w_i = min(n_i, 2 median_j n_j)

(norm clipping: Sun et al., 2019, *Can You Really Backdoor Federated Learning?*; the median as the
bound needs no setting). If fewer than half of the updates are hostile, c is at most as long as some
honest one. If fewer than a third are, they have less than half of the weight, whatever numbers of
samples they claim.
"""

import numpy as np

from .update_average import UpdateAverage, Vector

_HEAVIEST = 2.0  # times the usual number of samples that a client counts for


def clipped_mean(updates: Vector, weights: Vector) -> Vector:
    """Return the weighted mean of updates, none of them longer than the median.

    >>> updates = np.array([[3.0, 4.0], [0.0, 5.0], [-300.0, 0.0]])
    >>> clipped_mean(updates, weights=np.array([1, 2, 1])).tolist()
    [-0.5, 3.5]
    """
    weights = np.minimum(weights, _HEAVIEST * np.median(weights))
    norms = np.sqrt(np.vecdot(updates, updates))  # without a copy of all updates
    factors = np.minimum(np.median(norms), norms) / np.where(norms, norms, 1.0)
    return np.asarray((weights * factors / weights.sum()) @ updates)


class ClippedAvg(UpdateAverage):
    """FedAvg with every update clipped to the median norm of the round."""

    def combine(self, updates: Vector, weights: Vector, server_round: int) -> Vector:
        """Return the clipped mean."""
        return clipped_mean(updates, weights)
