"""FLTrust: the server trains on clean data of its own, and trusts updates that point its way.

Cao et al., 2021: *FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping* (NDSS).
With the update g_0 of the server and g_i of client i,

    g = sum_i t_i g_i |g_0| / |g_i| / sum_i t_i,   t_i = max(0, cos(g_i, g_0))

(algorithm 2; its alpha is 1). All rescaled updates are as long as the server's own; how many
samples clients have does not count. Where nobody is trusted, which the paper leaves open, the
server's own update is taken.
"""

import numpy as np

from ...core.config import RunConfig
from ..server_samples import ServerSamples
from .update_average import UpdateAverage, Vector


def trusted_mean(updates: Vector, reference: Vector) -> Vector:
    """Return the mean of updates, weighted by trust and as long as the reference.

    >>> trusted_mean(np.array([[6.0, 0.0], [-9.0, 0.0], [0.0, 5.0]]), np.array([2.0, 0.0])).tolist()
    [2.0, 0.0]
    """
    norms, length = np.linalg.norm(updates, axis=1), np.linalg.norm(reference)
    directions = updates / np.where(norms, norms, 1.0)[:, None]
    trust = np.maximum(0.0, directions @ (reference / (length or 1.0)))
    if not trust.sum():
        return reference
    return np.asarray((length * trust / trust.sum()) @ directions)


class FLTrust(UpdateAverage):
    """Weight updates by their direction, compared with what the server's validation set teaches."""

    def __init__(self, config: RunConfig, **everyone: int) -> None:
        super().__init__(**everyone)
        self.samples = ServerSamples(config, "aggregator = 'fltrust'")

    def combine(self, updates: Vector, weights: Vector, server_round: int) -> Vector:
        """Return the trusted mean."""
        return trusted_mean(updates, self.own_update(server_round))

    def own_update(self, server_round: int) -> Vector:
        """Train like a client, from the same model."""
        own = self.samples.trained(self.current, server_round)
        return self.flat(own.arrays) - self.flat(self.current)
