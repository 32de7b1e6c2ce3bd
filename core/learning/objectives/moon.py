"""MOON: stay near the global model's representation (Li, He and Song, 2021)."""

import logging
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ...config import RunConfig
from ...methods.objectives import MoonSettings
from ...tasks.models import split_at_head
from ...tasks.problems import Problem
from ..features import features_of
from ..job import Job
from ..model_arrays import training_mode
from ..placement import device_of
from .plain import BatchLoss, Plain, sample_weights

_TEMPERATURE = 0.5  # of its similarities, as in the paper's experiments
PREVIOUS = "previous"  # what the job carries: the model that the client sent last time

_log = logging.getLogger("forager")


class Moon(Plain):
    """Add ``mu`` times a contrastive loss to the problem's own.

    The loss is the cross-entropy of ``[cos(z, z_global), cos(z, z_previous)] / temperature`` with
    the first as the right answer (eq. 3), where ``z`` is what the head is given: the output of the
    projection, unless the model was built without one (``moon.projection``). The representations of
    the global and of the previous model do not change in a round: they are computed once, not once
    per batch. In a client's first round there is no previous model and the loss is plain
    cross-entropy: with the global model in its place the added term would be constant.
    """

    stackable = False

    def __init__(self, config: RunConfig) -> None:
        self.mu = config[MoonSettings].mu

    def batch_loss(self, model: nn.Module, job: Job, problem: Problem) -> BatchLoss:
        """Return the loss of a mini-batch as a function of its positions, inputs and targets."""
        previous = job.carried.get(PREVIOUS)
        if previous is None or not self.mu:
            return super().batch_loss(model, job, problem)
        body, head = split_at_head(model)
        _warn_if_constant(_fixed(model, head))
        device = device_of(model)
        old = features_of(model, previous, job.data).to(device)
        received = features_of(model, job.arrays, job.data).to(device)  # leaves it as it came
        training_mode(model)
        weights = sample_weights(job, device)

        def loss(positions: torch.Tensor, x: Any, y: torch.Tensor) -> torch.Tensor:
            chosen = None if weights is None else weights[positions]
            z = body(x)
            contrast = self._contrast(z.flatten(1), received[positions], old[positions])
            extra = contrast.mean() if chosen is None else (contrast * chosen).sum() / chosen.sum()
            return problem.mean_loss(head(z), y, chosen) + self.mu * extra

        return loss

    def _contrast(self, z: torch.Tensor, received: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        nearer = functional.cosine_similarity(z, old) - functional.cosine_similarity(z, received)
        return functional.softplus(nearer / _TEMPERATURE)  # a cross-entropy of two


def _fixed(model: nn.Module, head: nn.Linear) -> bool:
    """Return whether nothing below the head is trained."""
    own = {id(parameter) for parameter in head.parameters()}
    return all(id(p) in own for p in model.parameters() if p.requires_grad)


@lru_cache(maxsize=2)
def _warn_if_constant(constant: bool) -> None:
    if constant:
        _log.warning(
            "objective = 'moon': this model has nothing to train below its head, so that its "
            "representation is always the same and MOON is the same as plain SGD"
        )
