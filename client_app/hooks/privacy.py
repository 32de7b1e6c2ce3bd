"""Local differential privacy: what leaves the client is clipped and noisy."""

from dataclasses import replace

import numpy as np

from ...core.config import RunConfig
from ...core.learning.batches import batch_seed
from ...core.learning.clipping import clipped, with_noise
from ...core.learning.job import Job, Outcome
from ...core.methods.privacy import Dp
from ...core.wire.keys import TRAIN_LOSS
from ..request import ClientHook, ClientRequest


class LocalNoise(ClientHook):
    """Clip the update to a norm and add Gaussian noise before anything is sent.

    On a device the noise is unpredictable. In simulation it is seeded, so that runs repeat.
    """

    def __init__(self, config: RunConfig) -> None:
        self.settings = config[Dp]

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Return the model with its change clipped and noise added."""
        before = dict(job.arrays)
        arrays = clipped(before, outcome.arrays, self.settings.clip)
        rng = self._generator(request)
        scale = self.settings.noise_multiplier * self.settings.clip
        del request.metrics[TRAIN_LOSS]  # it would reveal what the noise hides
        return replace(outcome, arrays=with_noise(arrays, scale, rng))

    def _generator(self, request: ClientRequest) -> np.random.Generator:
        if "partition-id" not in request.context.node_config:
            return np.random.default_rng()
        return np.random.default_rng(
            [batch_seed(request.config.seed, request.key, request.round), 3]
        )
