"""Per-FedAvg: a model that is good after one step on a client's own data (Fallah et al., 2020).

*Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach*, in its first-order form: the Hessian is left out.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...config import RunConfig
from ...methods.objectives import PerFedAvgSettings
from ...tasks.problems import Problem
from ..job import Job
from ..placement import device_of, moved
from .plain import BatchLoss, Plain, sample_weights


class PerFedAvg(Plain):
    """The loss after one step of SGD on another mini-batch.

    For a batch D' the gradient is that of the loss on D' at ``w - alpha * grad f(w; D)``, where D
    is another batch of as many of the client's samples, drawn for each step. It is applied to ``w``
    itself. Evaluate with ``personalise.epochs``: the model is meant to be fine-tuned first.
    """

    def __init__(self, config: RunConfig) -> None:
        self.inner_rate = config[PerFedAvgSettings].inner_rate

    def stacks(self, chain: bool) -> bool:
        """Return False: every client draws other batches of its own."""
        return False

    def batch_loss(self, model: nn.Module, job: Job, problem: Problem) -> BatchLoss:
        """Return the loss of a mini-batch after a step on another one."""
        device = device_of(model)
        weights = sample_weights(job, device)
        # Not the seed itself, which decides the mini-batches.
        draws = torch.Generator().manual_seed((job.seed + 1) % 2**63)
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}

        def weights_of(positions: Tensor) -> Tensor | None:
            return None if weights is None else weights[positions]

        def outer(positions: Tensor, x: Any, y: Tensor) -> Tensor:
            # At least two where there are as many: batch normalisation cannot take a lone sample.
            count = max(2, len(positions))
            other = torch.randperm(len(job.data), generator=draws)[:count]
            inputs, targets = moved(next(iter(job.data.follow([other]))), device)
            first = problem.mean_loss(model(inputs), targets, weights_of(other.to(device)))
            steps = torch.autograd.grad(first, list(named.values()), materialize_grads=True)
            adapted = {
                name: parameter - self.inner_rate * step
                for (name, parameter), step in zip(named.items(), steps, strict=True)
            }
            outputs = functional_call(model, adapted, (x,))
            return problem.mean_loss(outputs, y, weights_of(positions))

        return outer
