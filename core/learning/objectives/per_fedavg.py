"""Per-FedAvg: a model that is good after one step on a client's own data (Fallah et al., 2020).

*Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach*, in its first-order form: the Hessian is left out.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...config import RunConfig
from ...methods.objectives import PerFedAvgSettings
from ..job import Job
from .plain import BatchLoss, Plain


class PerFedAvg(Plain):
    """The loss after one step of SGD on another mini-batch.

    For a batch D' the gradient is that of the loss on D' at ``w - alpha * grad f(w; D)``, where D
    is another batch of as many of the client's samples, drawn for each step. It is applied to ``w``
    itself. Evaluate with ``personalise.epochs``: the model is meant to be fine-tuned first.
    """

    stackable = False

    def __init__(self, config: RunConfig) -> None:
        self.inner_rate = config[PerFedAvgSettings].inner_rate

    def batch_loss(self, model: nn.Module, job: Job) -> BatchLoss:
        """Return the loss of a mini-batch after a step on another one."""
        adapted = _Adapted(model)
        loss, loss_after = super().batch_loss(model, job), super().batch_loss(adapted, job)
        # Not the seed itself, which decides the mini-batches.
        draws = torch.Generator().manual_seed((job.seed + 1) % 2**63)
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}

        def outer(positions: Tensor) -> Tensor:
            # At least two where there are as many: batch normalisation cannot take a lone sample.
            count = max(2, len(positions))
            inner = torch.randperm(len(job.data), generator=draws)[:count]
            steps = torch.autograd.grad(loss(inner), list(named.values()))
            adapted.weights = {
                name: parameter - self.inner_rate * step
                for (name, parameter), step in zip(named.items(), steps, strict=True)
            }
            return loss_after(positions)

        return outer


class _Adapted(nn.Module):
    """A model with other weights, through which gradients reach its own unchanged."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.weights: dict[str, Tensor] = {}

        def call(x: Tensor) -> Tensor:  # so that the model does not become a part of this one
            outputs: Tensor = functional_call(model, self.weights, (x,))
            return outputs

        self._call = call

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's outputs with the other weights."""
        return self._call(x)
