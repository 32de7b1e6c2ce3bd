"""Local differential privacy: what leaves the client is clipped and noisy."""

from dataclasses import replace

import numpy as np

from ...core.config import RunConfig
from ...core.learning.batches import batch_seed
from ...core.learning.clipping import clipped, with_noise
from ...core.learning.job import Outcome, Outcomes
from ...core.methods.privacy import Dp
from ...core.wire.keys import TRAIN_LOSS
from ..batch import Batch, ClientRow
from .base import PerClientHook


class LocalNoise(PerClientHook):
    """Clip the update to a norm and add Gaussian noise before anything is sent.

    On a device the noise is unpredictable. In simulation it is seeded, so that runs repeat.
    """

    of_updates = True

    def __init__(self, config: RunConfig) -> None:
        self.settings = config[Dp]

    def after(self, batch: Batch, outcomes: Outcomes) -> Outcomes:
        """Return the models with their changes clipped and noise added."""
        batch.metrics.pop(TRAIN_LOSS, None)  # it would reveal what the noise hides
        return super().after(batch, outcomes)

    def after_one(self, row: ClientRow, outcome: Outcome) -> Outcome:
        """Return the model with its change clipped and noise added."""
        arrays = clipped(row.model, outcome.arrays, self.settings.clip)
        scale = self.settings.noise_multiplier * self.settings.clip
        return replace(outcome, arrays=with_noise(arrays, scale, self._generator(row)))

    def _generator(self, row: ClientRow) -> np.random.Generator:
        if not row.simulated:
            return np.random.default_rng()
        return np.random.default_rng([batch_seed(row.config.seed, row.key, row.round), 3])
