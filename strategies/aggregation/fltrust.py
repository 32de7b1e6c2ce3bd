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
from ...core.learning.job import Job, batch_seed
from ...core.learning.model_arrays import chosen_device, read_arrays
from ...core.learning.objectives.plain import Plain
from ...core.learning.train_settings import train_settings
from ...core.learning.trainer import train_one
from ...core.tasks import load_task
from ..checks import validation_data
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
        self.config = config
        self.data = validation_data(config, "aggregator = 'fltrust'")
        task = load_task(config.task_spec())
        self.problem = task.problem
        self.model = task.build_model().to(chosen_device(config.device))

    def combine(self, updates: Vector, weights: Vector, server_round: int) -> Vector:
        """Return the trusted mean."""
        return trusted_mean(updates, self.own_update(server_round))

    def own_update(self, server_round: int) -> Vector:
        """Train like a client, from the same model."""
        seed = batch_seed(self.config.seed, "server", server_round)
        # Integer buffers are no part of what is aggregated.
        job = Job({**read_arrays(self.model), **self.current}, self.data, seed)
        settings = train_settings(self.config, server_round)
        own = train_one(self.model, job, settings, Plain(self.config), self.problem)
        return self.flat(own.arrays) - self.flat(self.current)
