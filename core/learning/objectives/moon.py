"""MOON: stay near the global model's representation (Li, He and Song, 2021)."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ...config import RunConfig
from ...methods.objectives import MoonSettings
from ...tasks.models import split_at_head
from ...tasks.problems import Problem
from ..features import features_of_all
from ..job import Job
from ..model_arrays import device_of, load_arrays, training_mode
from .plain import BatchLoss, Plain, sample_weights

_TEMPERATURE = 0.5  # of its similarities, as in the paper's experiments
PREVIOUS = "previous"  # what the job carries: the model that the client sent last time

_SHORTEST = 1e-8  # length by which a vector is divided, as in torch's cosine similarity
_log = logging.getLogger("forager")


class Moon(Plain):
    """Add ``mu`` times a contrastive loss to the problem's own.

    The loss is the cross-entropy of ``[cos(z, z_global), cos(z, z_previous)] / temperature`` with
    the first as the right answer (eq. 3), where ``z`` is what the head is given: the output of the
    projection, unless the model was built without one (``moon.projection``). With unit vectors
    u it is ``softplus(u . d / temperature)``, where ``d = u_previous - u_global`` does not change
    in a round: it is computed once, not once per batch. In a client's first round there is no
    previous model and the loss is plain cross-entropy: with the global model in its place the
    added term would be constant.
    """

    def __init__(self, config: RunConfig) -> None:
        self.mu = config[MoonSettings].mu

    def stacks(self, chain: bool) -> bool:
        """Return whether the model is a chain, whose head's gradients are written out by hand."""
        return chain

    @torch.inference_mode(False)  # in which parameters of some devices cannot be read
    def per_sample(self, model: nn.Module, jobs: Sequence[Job]) -> torch.Tensor | None:
        """Return rows of 1 and d; of 0 and zeros where the client has no previous model."""
        told = [PREVIOUS in job.carried for job in jobs]
        if not self.mu or not any(told):
            return None
        _warn_if_constant(_fixed(model, split_at_head(model)[1]))
        data = [job.data for job in jobs]
        received, old = (
            functional.normalize(features_of_all(model, arrays, data), eps=_SHORTEST)
            for arrays in (
                [job.arrays for job in jobs],
                [job.carried.get(PREVIOUS, job.arrays) for job in jobs],
            )
        )
        sizes = torch.tensor([len(samples) for samples in data])
        known = torch.tensor(told, dtype=old.dtype).repeat_interleave(sizes).unsqueeze(1)
        return torch.cat([known, known * (old - received)], 1).to(device_of(model))

    def added(self, known: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the contrastive loss of each sample, and its gradient in z."""
        rows = known.view(z.shape[0], z.shape[2], -1).mT
        told, direction = rows[:, 0], rows[:, 1:]
        length = z.norm(dim=1, keepdim=True).clamp_min_(_SHORTEST)
        unit = z / length
        nearer = (unit * direction).sum(1, keepdim=True)
        scaled = nearer / _TEMPERATURE
        slope = self.mu / _TEMPERATURE * scaled.sigmoid() / length
        losses = self.mu * told * functional.softplus(scaled).squeeze(1)
        return losses, (direction - nearer * unit) * slope

    def batch_loss(self, model: nn.Module, job: Job, problem: Problem) -> BatchLoss:
        """Return the loss of a mini-batch as a function of its positions, inputs and targets."""
        known = self.per_sample(model, [job])
        if known is None:
            return super().batch_loss(model, job, problem)
        load_arrays(model, job.arrays)  # others were looked through
        training_mode(model)
        body, head = split_at_head(model)
        weights_of = sample_weights(job, device_of(model))

        def loss(positions: torch.Tensor, x: Any, y: torch.Tensor) -> torch.Tensor:
            chosen = weights_of(positions)
            z = body(x)
            unit = functional.normalize(z.flatten(1), eps=_SHORTEST)
            nearer = (unit * known[positions, 1:]).sum(1)
            contrast = functional.softplus(nearer / _TEMPERATURE)
            extra = contrast.mean() if chosen is None else (contrast * chosen).sum() / chosen.sum()
            return problem.mean_loss(head(z), y, chosen) + self.mu * extra

        return loss


def _fixed(model: nn.Module, head: nn.Linear) -> bool:
    """Return whether nothing below the head is trained."""
    own = {id(parameter) for parameter in head.parameters()}
    return all(id(p) in own for p in model.parameters() if p.requires_grad)


@lru_cache(maxsize=2)
def _warn_if_constant(constant: bool) -> None:
    if constant:
        _log.warning(
            "objective = 'moon': no layer below this model's head is trained; its representation "
            "never changes, and MOON is the same as plain SGD"
        )
