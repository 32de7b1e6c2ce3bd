"""What stream rules need to know of samples: losses, gradient norms, values, the mean gradient.

For a linear last layer all of it comes from the forward pass alone. With outputs z = W h + b and
the gradient d of a sample's loss in z (softmax(z) - onehot(y) for cross-entropy), its gradient is
the outer product of d and ``[1, h]``: its norm is the product of theirs, and its projection on G
is the scalar product of d with ``G [1, h]``. No gradient is ever written out. For more layers,
projections come from a second derivative: the gradient of sum(w l), projected on G, is linear in
the weights w of the samples, and its derivative by w is every sample's projection. Lengths, which
only normalised values need, take every sample's own gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..config import RunConfig
from ..methods.ode import ode_settings
from ..tasks.models.head import split_at_head
from ..tasks.problems import Classification, Problem
from .placement import device_of

Floats = NDArray[np.float32]

_BATCH = 1024


@dataclass(frozen=True)
class Looked:
    """What a look at samples found, one entry per sample, and their mean gradient (flat)."""

    losses: Floats
    norms: Floats | None
    values: Floats | None
    mean_gradient: Floats


def valuation(
    model: nn.Module, config: RunConfig, problem: Problem | None = None
) -> "HeadValuation | LayersValuation":
    """Return how the samples of a run are looked at: rules other than ODE by the last layer."""
    problem = problem or Classification()
    ode = ode_settings(config)
    layers = 1 if ode is None else ode.layers
    if layers == 1 and (problem.has_classes or _ends_linearly(model)):
        return HeadValuation(model, problem)
    return LayersValuation(model, layers, norms=ode is None or ode.normalize, problem=problem)


def _ends_linearly(model: nn.Module) -> bool:
    """Return whether a model is a chain that ends in the linear layer that gives its outputs."""
    return isinstance(model, nn.Sequential) and isinstance(model[-1], nn.Linear)


class HeadValuation:
    """By the gradients of the last layer.

    Parameters
    ----------
    model : nn.Module
        With a linear last layer; its present weights are used.
    problem : Problem, optional
        Whose loss it is; classification by default.

    Examples
    --------
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    >>> _ = nn.init.zeros_(model[1].weight), nn.init.zeros_(model[1].bias)
    >>> looked = HeadValuation(model).look(torch.tensor([[3.0, 4.0]]), torch.tensor([1]), None)
    >>> looked.mean_gradient.reshape(2, 3).tolist()  # of each neuron, bias first
    [[0.5, 1.5, 2.0], [-0.5, -1.5, -2.0]]
    """

    def __init__(self, model: nn.Module, problem: Problem | None = None) -> None:
        self.problem = problem or Classification()
        self.device = device_of(model)
        self.body, self.head = split_at_head(model)
        self.size = self.head.out_features * (1 + self.head.in_features)
        model.eval()

    @torch.no_grad()
    def look(self, x: torch.Tensor, y: torch.Tensor, direction: Floats | None) -> Looked:
        """Look at samples; values are their projections on a direction, if there is one."""
        target = None
        if direction is not None:
            rows = torch.from_numpy(direction).to(self.device).view(self.head.out_features, -1)
            target = rows[:, :1], rows[:, 1:]
        losses, norms, values = [], [], []
        total = torch.zeros(self.head.out_features, 1 + self.head.in_features, device=self.device)
        for start in range(0, len(y), _BATCH):
            targets = y[start : start + _BATCH].to(self.device)
            features = self.body(x[start : start + _BATCH].to(self.device))
            each, difference = self.problem.output_gradients(self.head(features), targets)
            losses.append(each)
            lengths = (1 + features.square().sum(1)).sqrt()
            norms.append(difference.norm(dim=1) * lengths)
            if target is not None:
                projected = torch.addmm(target[0].T, features, target[1].T)
                values.append((difference * projected).sum(1))
            total[:, 0] += difference.sum(0)
            total[:, 1:] += difference.T @ features
        mean = (total / max(1, len(y))).flatten().cpu().numpy()
        return Looked(_joined(losses), _joined(norms), _joined(values) if target else None, mean)


class LayersValuation:
    """By the gradients of the last layers together.

    Parameters
    ----------
    model : nn.Module
        Its present weights are used.
    layers : int
        How many layers with parameters, counted from the last; 0 for all.
    norms : bool (default: False)
        Whether values need the lengths of gradients, which take much longer than they do.
    problem : Problem, optional
        Whose loss it is; classification by default.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: int,
        norms: bool = False,
        problem: Problem | None = None,
    ) -> None:
        model.eval()
        self.model, self.norms = model, norms
        self.problem, self.device = problem or Classification(), device_of(model)
        modules = [
            name
            for name, part in model.named_modules()
            if any(p.requires_grad for p in part.parameters(recurse=False))
        ]
        chosen = set(modules[-layers:])
        self.parameters = [
            parameter
            for name, parameter in model.named_parameters()
            if name.rpartition(".")[0] in chosen and parameter.requires_grad
        ]
        self.size = sum(parameter.numel() for parameter in self.parameters)

    @torch.enable_grad()
    def look(self, x: torch.Tensor, y: torch.Tensor, direction: Floats | None) -> Looked:
        """Look at samples; values are their projections on a direction, if there is one."""
        losses, norms, values = [], [], []
        total = torch.zeros(self.size, device=self.device)
        target = None if direction is None else torch.from_numpy(direction).to(self.device)
        for start in range(0, len(y), _BATCH):
            outputs = self.model(x[start : start + _BATCH].to(self.device))
            targets = y[start : start + _BATCH].to(self.device)
            each = self.problem.checked_loss(outputs, targets)
            losses.append(each.detach())
            if self.norms:
                norms.append(torch.stack([self._gradient(loss).norm() for loss in each]))
            weights = torch.ones_like(each, requires_grad=target is not None)
            gradient = self._gradient(each @ weights, create_graph=target is not None)
            total += gradient.detach()
            if target is not None:
                values.append(torch.autograd.grad(gradient @ target, weights)[0])
        return Looked(
            _joined(losses),
            _joined(norms) if self.norms else None,
            _joined(values) if target is not None else None,
            (total / max(1, len(y))).cpu().numpy(),
        )

    def _gradient(self, loss: torch.Tensor, create_graph: bool = False) -> torch.Tensor:
        parts = torch.autograd.grad(
            loss, self.parameters, retain_graph=True, create_graph=create_graph
        )
        return torch.cat([part.flatten() for part in parts])


def _joined(parts: Sequence[torch.Tensor]) -> Floats:
    return torch.cat([torch.zeros(0), *(part.cpu() for part in parts)]).numpy()
