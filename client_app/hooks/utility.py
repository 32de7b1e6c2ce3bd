"""How much a client's samples have to teach, as Oort sees it: one number in its reply."""

import math

import torch
from torch import nn
from torch.nn import functional

from ...core.learning.job import Job, Outcome
from ...core.learning.trainer import load_arrays
from ...core.tasks import Split
from ...core.wire.keys import UTILITY
from ..request import ClientHook, ClientRequest
from ..training import trainer_of

_BATCH = 512


class StatisticalUtility(ClientHook):
    """Add ``|B| sqrt(mean(loss^2))`` over the samples B that were trained on to the reply.

    The losses are those of the model that the client received. Those during training would cost no
    pass of their own, but depend on how long a client trains, and so do not compare.
    """

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Measure the loss of every sample."""
        model = trainer_of(request.config).model
        load_arrays(model, job.arrays)
        request.metrics[UTILITY] = statistical_utility(model, job.data)
        return outcome


@torch.no_grad()
def statistical_utility(model: nn.Module, data: Split) -> float:
    """Return Oort's statistical utility of data under a model.

    >>> data = Split(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> round(statistical_utility(nn.Linear(2, 2, bias=False), data) / math.log(2), 6)
    4.0
    """
    model.eval()
    squares = 0.0
    for start in range(0, len(data), _BATCH):
        x, y = data.x[start : start + _BATCH], data.y[start : start + _BATCH]
        losses = functional.cross_entropy(model(x), y, reduction="none").double()
        squares += float((losses**2).sum())
    return math.sqrt(len(data) * squares)
