"""Local differential privacy: the client clips its update and adds noise."""

from dataclasses import replace

from ...core.config import RunConfig
from ...core.entropy import protective
from ...core.learning.clipping import clipped, with_noise
from ...core.learning.job import Outcome, Outcomes, batch_seed
from ...core.methods.privacy import Dp
from ...core.wire.keys import NUM_EXAMPLES, SECONDS
from ..batch import ClientBatch, ClientRow
from .base import PerClientHook


class LocalNoise(PerClientHook):
    """Clip the update to a norm and add Gaussian noise before anything is sent."""

    of_updates = True

    def __init__(self, config: RunConfig) -> None:
        self.settings = config[Dp]

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Return the models with their changes clipped and noise added."""
        # A loss, or whatever else an app counts, would reveal what the noise hides.
        batch.metrics = {n: own for n, own in batch.metrics.items() if n in (NUM_EXAMPLES, SECONDS)}
        return super().after(batch, outcomes)

    def after_one(self, row: ClientRow, outcome: Outcome) -> Outcome:
        """Return the model with its change clipped and noise added."""
        arrays = clipped(row.model, outcome.arrays, self.settings.clip)
        scale = self.settings.noise_multiplier * self.settings.clip
        own = batch_seed(row.config.seed, row.key, row.round)
        rng = protective(row.simulated, own, 3)
        return replace(outcome, arrays=with_noise(arrays, scale, rng))
