"""A mean in which no update is longer than the median: robust, and fair to the sizes of sites.

Median and Krum ignore how many samples a site has. Here every site counts by its samples, and a
long update only by its direction:

    u = sum_i n_i u_i min(1, c / |u_i|) / sum_i n_i,   c = median_i |u_i|

(norm clipping: Sun et al., 2019, *Can You Really Backdoor Federated Learning?*; the median as the
bound needs no setting). While fewer than half of the updates are hostile, c is at most as long as
some honest one, and a hostile one moves the mean by at most c n_i / sum n. What a client can claim
as n_i is bounded by ``quarantine.weight-factor``.
"""

import numpy as np

from .update_average import UpdateAverage, Vector


def clipped_mean(updates: Vector, weights: Vector) -> Vector:
    """Return the weighted mean of updates, none of them longer than the median.

    >>> clipped_mean(np.array([[3.0, 4.0], [0.0, 5.0], [-300.0, 0.0]]), np.ones(3)).tolist()
    [-0.6666666666666666, 3.0]
    """
    norms = np.linalg.norm(updates, axis=1)
    factors = np.minimum(np.median(norms), norms) / np.where(norms, norms, 1.0)
    return np.asarray((weights * factors / weights.sum()) @ updates)


class ClippedAvg(UpdateAverage):
    """FedAvg with every update clipped to the median norm of the round."""

    def combine(self, updates: Vector, weights: Vector, server_round: int) -> Vector:
        """Return the clipped mean."""
        return clipped_mean(updates, weights)
