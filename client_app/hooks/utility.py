"""How much a client's samples have to teach, as Oort sees it: one number in its reply."""

from ...core.learning.evaluation import root_mean_square_loss
from ...core.learning.job import Job, Outcome
from ...core.wire.keys import UTILITY
from ..handlers.training import trainer_of
from ..request import ClientHook, ClientRequest


class StatisticalUtility(ClientHook):
    """Add ``|B| sqrt(mean(loss^2))`` over the samples B that were trained on to the reply.

    The losses are those of the model that the client received. Those during training would cost no
    pass of their own, but depend on how long a client trains, and so do not compare.
    """

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Measure the loss of every sample."""
        trainer = trainer_of(request.config)
        typical = root_mean_square_loss(trainer.model, job.arrays, job.data, trainer.problem)
        request.metrics[UTILITY] = len(job.data) * typical
        return outcome
