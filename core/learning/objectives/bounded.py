"""Losses that no wrong label can make large: generalised and symmetric cross-entropy.

Both are increasing functions f of the cross-entropy ``l = -log p``, where p is the probability of
the label. So their gradient in the outputs is that of cross-entropy times ``f'(l)``, which is small
where the model does not believe the label. It costs one exponential per sample, and is written out
by hand wherever that of the problem's loss is.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ...config import RunConfig
from ...methods.bounded import GceSettings
from ...tasks.problems import Problem
from .plain import Plain

Bend = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Of the losses of samples: the losses to minimise instead, and their derivatives."""


_OF_ZERO = 4.0  # what the logarithm of 0 counts as, negated (-A)


class Bent(Problem):
    """A problem whose loss per sample is a function of another problem's."""

    def __init__(self, problem: Problem, bend: Bend) -> None:
        self.problem, self.bend = problem, bend

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample."""
        return self.bend(self.problem.checked_loss(outputs, targets))[0]

    @property
    def closed_form(self) -> bool:
        """Whether the gradient of the other problem needs no backward pass."""
        return self.problem.closed_form

    def output_gradients(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample and its gradient in the outputs, by the chain rule."""
        losses, gradients = self.problem.output_gradients(outputs, targets)
        bent, slopes = self.bend(losses)
        return bent, gradients.mul_(slopes.unsqueeze(1))


class Gce(Plain):
    """Generalised cross-entropy (Zhang and Sabuncu, 2018, eq. 6): ``(1 - p^q) / q``.

    Cross-entropy as q goes to 0, the mean absolute error at q = 1; at most ``1 / q``.
    """

    def __init__(self, config: RunConfig) -> None:
        self.q = config[GceSettings].q

    def minimised(self, problem: Problem) -> Problem:
        """Return the problem with the bounded loss."""
        return Bent(problem, self.bend)

    def bend(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``(1 - exp(-q l)) / q`` and its derivative, ``exp(-q l) = p^q``."""
        slopes = torch.exp(-self.q * losses)
        return (1 - slopes) / self.q, slopes


class Sce(Plain):
    """Symmetric cross-entropy (Wang et al., 2019, eq. 7): ``alpha l + r``.

    The reverse cross-entropy r swaps prediction and label, with ``log 0 = A = -4``:
    ``r = -A (1 - p)``, a multiple of the mean absolute error.
    """

    alpha = 0.1  # of the paper's CIFAR-10

    def minimised(self, problem: Problem) -> Problem:
        """Return the problem with the symmetric loss."""
        return Bent(problem, self.bend)

    def bend(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``alpha l - A (1 - p)`` and its derivative, ``alpha - A p``."""
        reverse = _OF_ZERO * torch.exp(-losses)
        return self.alpha * losses + (_OF_ZERO - reverse), self.alpha + reverse
