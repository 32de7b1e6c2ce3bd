"""Plain empirical risk."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...config import RunConfig
from ...tasks.problems import Problem
from ..job import Job
from ..model_arrays import device_of

Tensors = Sequence[torch.Tensor]
Carried = Mapping[str, Tensors]
BatchLoss = Callable[[torch.Tensor, Any, torch.Tensor], torch.Tensor]
"""Of a mini-batch: its positions in the job's data, its inputs and its targets."""


class Plain:
    """The problem's loss and nothing else.

    Other objectives derive from this one and change gradients (:meth:`adjust`, elementwise in the
    parameters, of one client or a stack), the loss of a sample (:meth:`minimised`) or that of a
    mini-batch (:meth:`batch_loss`). One with a batch loss of its own can be stacked if it is a
    function of what the head is given (:meth:`per_sample`, :meth:`added`).
    """

    carries: Sequence[str] = ()  # what :meth:`adjust` is given of what jobs carry, by name
    first_rate = 0.0  # learning rate of the steps of :meth:`first_plans`

    def stacks(self, chain: bool) -> bool:
        """Return whether clients can be stacked, whose model is a chain of layers or any other."""
        return True

    def __init__(self, config: RunConfig) -> None:
        """Take settings from the run config."""

    def minimised(self, problem: Problem) -> Problem:
        """Return the problem whose loss per sample is minimised: the task's own, or another."""
        return problem

    def adjust(
        self, gradients: Tensors, parameters: Tensors, start: Tensors, carried: Carried
    ) -> None:
        """Change gradients in place; ``start`` are the parameters as received from the server."""

    def per_sample(self, model: nn.Module, jobs: Sequence[Job]) -> torch.Tensor | None:
        """Return what :meth:`added` must know, a row per sample; None if nothing is added."""
        return None

    def added(self, known: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss that each sample adds, and its gradient in what the head is given.

        ``known`` are rows of :meth:`per_sample`; ``z`` is (clients, features, batch).
        """
        raise NotImplementedError

    def first_plans(
        self, jobs: Sequence[Job], plans: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """Return samples, like ``plans``, on which each step takes a step of its own first, if any.

        Gradients are then those after that step, and are applied before it.
        """
        return None

    def batch_loss(self, model: nn.Module, job: Job, problem: Problem) -> BatchLoss:
        """Return the loss of a mini-batch as a function of its positions, inputs and targets."""
        weights_of = sample_weights(job, device_of(model))

        def loss(positions: torch.Tensor, x: Any, y: torch.Tensor) -> torch.Tensor:
            return problem.mean_loss(model(x), y, weights_of(positions))

        return loss


def sample_weights(job: Job, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor | None]:
    """Return the weights of samples of a job by their positions; of equal ones, None."""
    weights = None if job.weights is None else torch.from_numpy(job.weights).to(device)
    return lambda positions: None if weights is None else weights[positions]
