"""What stream rules need to know of samples: losses, gradient norms, values, the mean gradient.

For a linear last layer all of it comes from the forward pass alone. With outputs z = W h + b and
the gradient d of a sample's loss in z (softmax(z) - onehot(y) for cross-entropy), its gradient is
the outer product of d and ``[1, h]``: its norm is the product of theirs, and its projection on G
is the scalar product of d with ``G [1, h]``. No gradient is ever written out. For more layers,
projections come from a second derivative: the gradient of sum(w l), projected on G, is linear in
the weights w of the samples, and its derivative by w is every sample's projection. Lengths, which
only normalised values need, take every sample's own gradient.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..config import RunConfig
from ..methods.ode import OdeSettings, ode_method
from ..tasks import Samples
from ..tasks.models.head import split_at_head
from ..tasks.problems import Classification, Problem
from .model_arrays import device_of, load_arrays
from .pools import Arrays, Pool, of_same_model, pools, stack_limit, stackable, stacked_parameters
from .stack import chain_forward

Floats = NDArray[np.float32]
Seen = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]

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
    ode = ode_method(config)
    layers = 1 if ode is None else config[OdeSettings].layers
    if layers == 1 and (problem.has_classes or _ends_linearly(model)):
        return HeadValuation(model, problem)
    return LayersValuation(model, layers, norms=ode is None, problem=problem)


def looked_at_all(
    model: nn.Module,
    config: RunConfig,
    problem: Problem | None,
    arrays: Sequence[Arrays],
    data: Sequence[Samples],
    directions: Sequence[Floats | None],
) -> list[Looked]:
    """Look at the samples of each client with its model and direction, as one by one.

    Where the last layer counts, small clients are looked at together.
    """
    look = valuation(model, config, problem)
    keys: Sequence[Hashable] = range(len(data))
    most = len(data)
    if isinstance(look, HeadValuation):
        if stackable(model, data):
            keys, most = [each is None for each in directions], stack_limit(model)
        else:
            keys = list(zip(of_same_model(model, arrays), map(id, directions), strict=True))
    found: dict[int, Looked] = {}
    for pool in pools(keys, data, most):
        if isinstance(pool, int):
            load_arrays(model, arrays[pool])
            found[pool] = look.look(data[pool].x, data[pool].y, directions[pool])
        elif isinstance(look, HeadValuation):
            found |= zip(pool.clients, look.look_at_pool(pool, arrays, directions), strict=True)
    return [found[client] for client in range(len(data))]


def _ends_linearly(model: nn.Module) -> bool:
    """Return whether a model is a chain that ends in the linear layer that gives its outputs."""
    return isinstance(model, nn.Sequential) and isinstance(model[-1], nn.Linear)


class HeadValuation:
    """By the gradients of the last layer."""

    def __init__(self, model: nn.Module, problem: Problem | None = None) -> None:
        self.model, self.problem = model, problem or Classification()
        self.device = device_of(model)
        self.body, self.head = split_at_head(model)
        self.size = self.head.out_features * (1 + self.head.in_features)
        model.eval()

    @torch.no_grad()
    def look(self, x: torch.Tensor, y: torch.Tensor, direction: Floats | None) -> Looked:
        """Look at samples; values are their projections on a direction, if there is one."""
        target = self._rows(direction)
        columns: tuple[list[torch.Tensor], ...] = ([], [], [])
        total = torch.zeros(self.head.out_features, 1 + self.head.in_features, device=self.device)
        for start in range(0, len(y), _BATCH):
            part = slice(start, start + _BATCH)
            features, outputs, aims = self._seen(x[part], target)
            each, difference = self._judged(features, outputs, y[part], aims)
            for column, found in zip(columns, each, strict=False):  # values may be missing
                column.append(found)
            total[:, 0] += difference.sum(0)
            total[:, 1:] += difference.T @ features
        losses, norms, values = map(_joined, columns)
        mean = (total / max(1, len(y))).flatten().cpu().numpy()
        return Looked(losses, norms, None if target is None else values, mean)

    @torch.no_grad()
    def look_at_pool(
        self, pool: Pool, arrays: Sequence[Arrays], directions: Sequence[Floats | None]
    ) -> list[Looked]:
        """Look at the samples of many clients in one pass; all have a direction, or none has."""
        first = pool.clients[0]
        if all(
            arrays[client] is arrays[first] and directions[client] is directions[first]
            for client in pool.clients
        ):
            load_arrays(self.model, arrays[first])
            features, outputs, aims = self._seen(pool.x, self._rows(directions[first]))
        else:
            features, outputs, aims = self._seen_apart(pool, arrays, directions)
        each, difference = self._judged(features, outputs, pool.y, aims)
        behind, given = pool.padded(difference).mT, pool.padded(features)
        totals = torch.cat([behind.sum(2, keepdim=True), torch.bmm(behind, given)], 2).flatten(1)
        means = totals.cpu().numpy() / pool.sizes.astype(np.float32)[:, None]
        losses, norms, *values = (pool.cut(column.cpu().numpy()) for column in each)
        valued = values[0] if values else [None] * len(means)
        return [Looked(*own) for own in zip(losses, norms, valued, means, strict=True)]

    def _rows(self, direction: Floats | None) -> torch.Tensor | None:
        """Return a direction as one row for each neuron, bias first."""
        if direction is None:
            return None
        return torch.from_numpy(direction).to(self.device).view(self.head.out_features, -1)

    def _seen(self, x: torch.Tensor, target: torch.Tensor | None) -> Seen:
        """Return features h, outputs z and, with a direction G, ``G [1, h]``."""
        features = self.body(x.to(self.device))
        outputs = self.head(features)
        if target is None:
            return features, outputs, None
        return features, outputs, torch.addmm(target[:, :1].T, features, target[:, 1:].T)

    def _seen_apart(
        self, pool: Pool, arrays: Sequence[Arrays], directions: Sequence[Floats | None]
    ) -> Seen:
        """Return the same of clients with models and directions of their own."""
        seen = chain_forward(
            self.model,
            stacked_parameters(self.model, arrays, pool),
            pool.padded(pool.x).to(self.device),
        )
        used, given = pool.used.to(self.device), seen[-2]
        targets = [each for client in pool.clients if (each := directions[client]) is not None]
        aims = None
        if targets:
            rows = torch.from_numpy(np.stack(targets)).to(self.device)
            rows = rows.view(len(targets), self.head.out_features, -1)
            aims = torch.baddbmm(rows[:, :, :1], rows[:, :, 1:], given).mT[used]
        return given.mT[used], seen[-1].mT[used], aims

    def _judged(
        self,
        features: torch.Tensor,
        outputs: torch.Tensor,
        y: torch.Tensor,
        aims: torch.Tensor | None,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return losses, norms and values of samples, and their differences d."""
        losses, difference = self.problem.output_gradients(outputs, y.to(self.device))
        norms = difference.norm(dim=1) * (1 + features.square().sum(1)).sqrt()
        if aims is None:
            return (losses, norms), difference
        return (losses, norms, (difference * aims).sum(1)), difference


class LayersValuation:
    """By the gradients of the last layers together, 0 for all."""

    def __init__(
        self, model: nn.Module, layers: int, norms: bool = False, problem: Problem | None = None
    ) -> None:
        model.eval()
        self.model, self.norms = model, norms  # lengths of gradients, which take much longer
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
