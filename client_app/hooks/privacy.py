"""Local differential privacy: what leaves the client is clipped and noisy."""

from dataclasses import replace

import numpy as np

from ...core.config.run_config import RunConfig
from ...core.learning.batches import batch_seed
from ...core.learning.job import Job, Outcome
from ...strategies.privacy import clipped
from ..request import ClientHook, ClientRequest


class LocalNoise(ClientHook):
    """Clip the update to a norm and add Gaussian noise before anything is sent.

    On a device the noise is unpredictable. In simulation it is seeded, so that runs repeat.
    """

    def __init__(self, config: RunConfig) -> None:
        self.settings = config.dp

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Return the model with its change clipped and noise added."""
        before = dict(job.arrays)
        arrays = clipped(before, outcome.arrays, self.settings.clip)
        rng = self._generator(request)
        scale = self.settings.noise_multiplier * self.settings.clip
        noisy = {
            name: array + rng.normal(scale=scale, size=array.shape).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in arrays.items()
        }
        return replace(outcome, arrays=noisy)

    def _generator(self, request: ClientRequest) -> np.random.Generator:
        if "partition-id" not in request.context.node_config:
            return np.random.default_rng()
        return np.random.default_rng(
            [batch_seed(request.config.seed, request.key, request.round), 3]
        )
