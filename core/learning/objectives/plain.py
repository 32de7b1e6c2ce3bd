"""Plain empirical risk."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

from ...config import RunConfig
from ..job import Job

Tensors = Sequence[torch.Tensor]
BatchLoss = Callable[[torch.Tensor], torch.Tensor]


class Plain:
    """Cross-entropy and nothing else.

    Other objectives derive from this one and change gradients (:meth:`adjust`) or the loss itself
    (:meth:`batch_loss`). What :meth:`adjust` does must be elementwise in the parameters, so that it
    works on one client's tensors and on a stack of clients' tensors (with a leading client axis)
    alike. An objective with a loss of its own cannot be stacked.
    """

    stackable = True

    def __init__(self, config: RunConfig) -> None:
        """Take settings from the run config."""

    def adjust(
        self,
        gradients: Tensors,
        parameters: Tensors,
        start: Tensors,
        carried: Mapping[str, Tensors],
    ) -> None:
        """Change gradients in place.

        ``start`` are the parameters as received from the server, ``carried`` what the job brought
        for the objective, in the order of the parameters.
        """

    def batch_loss(self, model: nn.Module, job: Job) -> BatchLoss:
        """Return the loss of a mini-batch as a function of its positions in the job's data."""
        weights = None if job.weights is None else torch.from_numpy(job.weights)

        def loss(positions: torch.Tensor) -> torch.Tensor:
            logits = model(job.data.x[positions])
            chosen = None if weights is None else weights[positions]
            return cross_entropy(logits, job.data.y[positions], chosen)

        return loss


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None
) -> torch.Tensor:
    """Return the mean cross-entropy, weighted if there are weights."""
    if weights is None:
        return functional.cross_entropy(logits, labels)
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return (losses * weights).sum() / weights.sum()
