"""Oort's statistical utility of a client's samples: one number in its reply."""

from ...core.learning.evaluation import root_mean_square_losses
from ...core.learning.job import Outcomes
from ...core.wire.keys import UTILITY
from ..batch import ClientBatch
from .base import ClientHook


class StatisticalUtility(ClientHook):
    """Add ``|B| sqrt(mean(loss^2))`` over the samples B that were trained on to the reply.

    The losses are those of the model that the client received. Those during training would cost no
    pass of their own, but depend on how long a client trains, and so do not compare.
    """

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Measure the loss of every sample."""
        trainer, data = batch.side.trainer, batch.data
        typical = root_mean_square_losses(trainer.model, batch.models, data, trainer.problem)
        pairs = zip(data, typical, strict=True)
        batch.metrics[UTILITY] = [len(samples) * value for samples, value in pairs]
        return outcomes
