"""Per-FedAvg: a model that is good after one step on a client's own data (Fallah et al., 2020).

*Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach*, in its first-order form: the Hessian is left out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from ...config import RunConfig
from ...methods.objectives import PerFedAvgSettings
from ...tasks.problems import Problem
from ..job import UNUSED, Job
from ..model_arrays import device_of, moved
from .plain import BatchLoss, Plain, sample_weights


class PerFedAvg(Plain):
    """The loss after one step of SGD on another mini-batch.

    For a batch D' the gradient is that of the loss on D' at ``w - alpha * grad f(w; D)``, where D
    is another batch of as many of the client's samples, drawn for each step. It is applied to ``w``
    itself. Evaluate with ``personalise.epochs``: the model is meant to be fine-tuned first.
    """

    def __init__(self, config: RunConfig) -> None:
        self.first_rate = config[PerFedAvgSettings].inner_rate

    def first_plans(self, jobs: Sequence[Job], plans: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the other batch of every step."""
        clients, steps, width = plans.shape
        found = np.full((clients, steps, max(2, width)), UNUSED)
        counts = (plans != UNUSED).sum(2)
        for own, job, sizes in zip(found, jobs, counts.tolist(), strict=True):
            draws = _draws(job)
            for row, size in zip(own, sizes, strict=True):
                if size:
                    other = _other_batch(job, size, draws).numpy()
                    row[: len(other)] = other
        return found

    def batch_loss(self, model: nn.Module, job: Job, problem: Problem) -> BatchLoss:
        """Return the loss of a mini-batch after a step on another one."""
        device = device_of(model)
        weights_of = sample_weights(job, device)
        draws = _draws(job)
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}

        def outer(positions: Tensor, x: Any, y: Tensor) -> Tensor:
            other = _other_batch(job, len(positions), draws)
            inputs, targets = moved(next(iter(job.data.follow([other]))), device)
            first = problem.mean_loss(model(inputs), targets, weights_of(other.to(device)))
            steps = torch.autograd.grad(first, list(named.values()), materialize_grads=True)
            adapted = {
                name: parameter - self.first_rate * step
                for (name, parameter), step in zip(named.items(), steps, strict=True)
            }
            outputs = functional_call(model, adapted, (x,))
            return problem.mean_loss(outputs, y, weights_of(positions))

        return outer


def _draws(job: Job) -> torch.Generator:
    # Not the seed itself, which decides the mini-batches
    return torch.Generator().manual_seed((job.seed + 1) % 2**63)


def _other_batch(job: Job, size: int, draws: torch.Generator) -> Tensor:
    """Draw as many samples, two where there are as many: batch normalisation needs them."""
    return torch.randperm(len(job.data), generator=draws)[: max(2, size)]
