"""Train many small clients at once: one batched matrix product instead of a hundred little ones.

The parameters of all clients are stacked along a first axis, their mini-batches likewise, and
gradients are written out by hand for chains of linear and elementwise layers, where that takes
three lines per layer; :mod:`core.learning.vmap_stack` has those of other models. Clients with fewer
mini-batches drop out of the stack as they finish, clients with a smaller last batch are padded with
samples of weight zero. A device is a stack of one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..tasks.problems import Problem
from .job import UNUSED, Job, Outcomes, batch_plans
from .model_arrays import device_of
from .objectives.plain import Plain
from .train_settings import TrainSettings, sgd_

Tensors = dict[str, torch.Tensor]
StackGradients = Callable[
    [nn.Module, Tensors, torch.Tensor, torch.Tensor, torch.Tensor, Problem],
    tuple[torch.Tensor, Tensors],
]
"""Of a model, stacked parameters, inputs, targets and sample weights, and a problem."""
Added = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Of what the head is given: the loss that each sample adds, and its gradient in that."""
Step = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Inputs, labels and weights of the clients that have such a batch, and the samples' positions."""

# Elementwise layers and their derivatives, as a function of their output
_DERIVATIVES: dict[type[nn.Module], Callable[[torch.Tensor], torch.Tensor]] = {
    nn.ReLU: lambda out: out > 0,
    nn.Tanh: lambda out: 1 - out * out,
    nn.Sigmoid: lambda out: out * (1 - out),
}


def can_stack(model: nn.Module) -> bool:
    """Return whether a model is a plain chain of linear and elementwise layers, all trained."""
    if type(model) is not nn.Sequential or not len(model):
        return False
    if not all(parameter.requires_grad for parameter in model.parameters()):
        return False
    first = model[0]
    flat = type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1)
    chain = list(model.children())[1 if flat else 0 :]
    return all(type(layer) in (nn.Linear, nn.Identity, *_DERIVATIVES) for layer in chain)


def stacked_gradients(
    model: nn.Module,
    parameters: Tensors,
    x: torch.Tensor,
    y: torch.Tensor,
    weights: torch.Tensor,
    problem: Problem,
    added: Added | None = None,
    squares: Tensors | None = None,
) -> tuple[torch.Tensor, Tensors]:
    """Return every client's weighted mean loss and its gradients.

    All arguments have a first axis for the client: ``x`` and ``y`` (clients, batch, ...),
    ``weights`` (clients, batch). To ``squares``, if given, squared gradients are added.
    """
    seen = chain_forward(model, parameters, x)
    each, delta = _output_gradients(seen[-1], y, problem)
    at_head = None
    if added is not None:
        more, at_head = added(seen[-2])
        each += more
        at_head *= weights.unsqueeze(1)
    losses = (each * weights).sum(1)
    delta.mul_(weights.unsqueeze(1))
    gradients: Tensors = {}
    for name, given, behind in chain_backward(model, parameters, seen, delta, at_head):
        gradients[f"{name}.weight"] = torch.bmm(behind, given.mT)
        if f"{name}.bias" in parameters:
            gradients[f"{name}.bias"] = behind.sum(2)
        if squares is not None:  # a sample's weight is in what is squared, and once too often
            squared = behind.square().mul_(1 / weights.where(weights > 0, torch.inf).unsqueeze(1))
            squares[f"{name}.weight"].baddbmm_(squared, given.square().mT)
            if f"{name}.bias" in parameters:
                squares[f"{name}.bias"].add_(squared.sum(2))
    return losses, gradients


def chain_forward(model: nn.Module, parameters: Tensors, x: torch.Tensor) -> list[torch.Tensor]:
    """Return what each layer of a chain is given, and its outputs: (clients, features, batch)."""
    layers = list(model.named_children())
    x = (x.flatten(2) if isinstance(layers[0][1], nn.Flatten) else x).mT
    seen = [x]
    for name, layer in layers:
        if isinstance(layer, nn.Linear):
            weight, bias = parameters[f"{name}.weight"], parameters.get(f"{name}.bias")
            if bias is None:
                x = torch.bmm(weight, x)
            else:
                x = torch.baddbmm(bias.unsqueeze(2), weight, x)
        elif not isinstance(layer, nn.Flatten):
            x = layer(x)
        seen.append(x)
    return seen


def chain_backward(
    model: nn.Module,
    parameters: Tensors,
    seen: Sequence[torch.Tensor],
    delta: torch.Tensor,
    at_head: torch.Tensor | None = None,
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield name, inputs and the gradient in the outputs of each linear layer, the last one first.

    ``at_head`` is added to the gradient in what the last linear layer is given.
    """
    layers = list(model.named_children())
    left = sum(isinstance(layer, nn.Linear) for _, layer in layers)
    for (name, layer), given, returned in zip(
        reversed(layers), reversed(seen[:-1]), reversed(seen[1:]), strict=True
    ):
        if isinstance(layer, nn.Linear):
            yield name, given, delta
            left -= 1
            if not left:
                return  # nothing below has parameters
            delta = torch.bmm(parameters[f"{name}.weight"].mT, delta)
            if at_head is not None:
                delta, at_head = delta.add_(at_head), None
        elif type(layer) in _DERIVATIVES:
            delta = delta * _DERIVATIVES[type(layer)](returned)


def _output_gradients(
    outputs: torch.Tensor, y: torch.Tensor, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each sample, and its gradient in the outputs (clients, outputs, batch)."""
    if problem.closed_form:
        return problem.output_gradients(outputs, y)
    rows = outputs.mT
    losses, gradients = problem.output_gradients(rows.flatten(0, 1), y.flatten(0, 1))
    return losses.view(rows.shape[:2]), gradients.view(rows.shape).mT


class _Batches:
    """The mini-batches of a stack of clients, those with most batches first."""

    def __init__(
        self, jobs: Sequence[Job], settings: TrainSettings, objective: Plain, device: torch.device
    ) -> None:
        lengths = [job.data.y.shape[0] for job in jobs]
        seeds = [job.seed for job in jobs]
        plans = batch_plans(
            *(lengths, settings.batch_size, settings.epochs, settings.steps, seeds),
            own=[job.steps for job in jobs],
        )
        self._weighted = any(job.weights is not None for job in jobs)
        own_steps = any(job.steps for job in jobs)
        self._alike = not (self._weighted or own_steps) and min(lengths) == max(lengths)
        steps = np.broadcast_to(self._used(plans).any(2).sum(1), len(jobs))
        self.order = np.arange(len(jobs)) if self._alike else np.argsort(-steps, kind="stable")
        self.sizes, self.steps = np.array(lengths)[self.order], steps[self.order]
        self.jobs = jobs if self._alike else [jobs[i] for i in self.order.tolist()]
        self.x = torch.cat([job.data.x for job in self.jobs]).to(device)
        self.y = torch.cat([job.data.y for job in self.jobs]).to(device)
        self._places = self._placed(plans, device)
        first = objective.first_plans(jobs, plans)
        self._first = None if first is None else self._placed(first, device)
        # The clients that have such a batch
        self._active = (self.steps > np.arange(self.steps[0])[:, None]).sum(1).tolist()

    def _used(self, plans: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which places of batches hold a sample; one stands for all that are alike."""
        used: NDArray[np.bool_] = (plans[:1] if self._alike else plans) != UNUSED
        return used

    def _placed(
        self, plans: NDArray[np.int64], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return positions in all clients' samples, and weights, both (steps, clients, batch)."""
        offsets = np.cumsum(self.sizes) - self.sizes
        positions = np.maximum(plans[self.order], 0) + offsets[:, None, None]
        used = self._used(plans)
        weights: NDArray[Any] = used if self._alike else used[self.order]
        if self._weighted:
            own = [
                np.ones(len(job.data)) if job.weights is None else job.weights for job in self.jobs
            ]
            weights = weights * np.concatenate(own)[positions]
        totals = weights.sum(2, keepdims=True)
        weights = np.divide(weights, totals, out=np.zeros(weights.shape), where=totals > 0)
        # By steps, so that a step's are next to each other
        by_step = torch.from_numpy(weights.swapaxes(0, 1).astype(np.float32, order="C")).to(device)
        return (
            torch.from_numpy(np.ascontiguousarray(positions.swapaxes(0, 1))).to(device),
            by_step.expand(-1, len(self.jobs), -1),
        )

    def __iter__(self) -> Iterator[tuple[Step, Step | None]]:
        """Yield a step's batches, and those on which its objective takes another step first."""
        for number, active in enumerate(self._active):
            first = None if self._first is None else self._step(self._first, number, active)
            yield self._step(self._places, number, active), first

    def _step(self, placed: tuple[torch.Tensor, torch.Tensor], number: int, active: int) -> Step:
        positions, weights = (tensor[number, :active] for tensor in placed)
        rows, shape = positions.reshape(-1), weights.shape
        x, y = self.x.index_select(0, rows), self.y.index_select(0, rows)
        return x.view(*shape, *x.shape[1:]), y.view(*shape, *y.shape[1:]), weights, rows


def train_stack(
    model: nn.Module,
    jobs: Sequence[Job],
    settings: TrainSettings,
    objective: Plain,
    problem: Problem,
    gradients: StackGradients = stacked_gradients,
) -> Outcomes:
    """Train every job's model on its data, all together; outcomes in the order of the jobs."""
    problem = objective.minimised(problem)
    # Inference mode is faster, but what is made in it cannot take part in a backward pass.
    by_hand = gradients is stacked_gradients and problem.closed_form
    with torch.inference_mode(by_hand), torch.no_grad():
        return _train_stack(model, jobs, settings, objective, problem, gradients)


def _train_stack(
    model: nn.Module,
    jobs: Sequence[Job],
    settings: TrainSettings,
    objective: Plain,
    problem: Problem,
    gradients_of: StackGradients,
) -> Outcomes:
    device = device_of(model)
    batches = _Batches(jobs, settings, objective, device)
    names = list(jobs[0].arrays)
    start = stacks([job.arrays for job in batches.jobs], names, device)
    # Memory of its own: models that are the same for all are one in ``start``
    current = [tensor.clone(memory_format=torch.contiguous_format) for tensor in start]
    momenta = [torch.zeros_like(tensor) for tensor in current] if settings.momentum else []
    carried = {
        key: stacks([job.carried[key] for job in batches.jobs], names, device)
        for key in objective.carries
    }
    known = objective.per_sample(model, batches.jobs)
    losses = torch.zeros(len(jobs), device=device)
    squares = [t.new_zeros(settings.squares, *t.shape) for t in current if settings.squares]
    active = -1
    for number, ((x, y, weights, rows), first) in enumerate(batches):
        if len(weights) != active:
            active = len(weights)
            parameters, begun, momentum = (_first(active, t) for t in (current, start, momenta))
            by_name = dict(zip(names, parameters, strict=True))
            brought = {key: _first(active, tensors) for key, tensors in carried.items()}
            summed = losses[:active]
        if known is not None:
            gradients_of = partial(stacked_gradients, added=partial(objective.added, known[rows]))
        elif squares:
            part = settings.squares_of(number)
            to = None
            if part is not None:
                to = dict(zip(names, (own[part, :active] for own in squares), strict=True))
            gradients_of = partial(stacked_gradients, squares=to)
        at = by_name
        if first is not None:
            slope_of = stacked_gradients if squares else gradients_of
            _, slopes = slope_of(model, by_name, *first[:3], problem)
            at = {n: p.sub(slopes[n], alpha=objective.first_rate) for n, p in by_name.items()}
        step_losses, found = gradients_of(model, at, x, y, weights, problem)
        gradients = [found[name] for name in names]
        objective.adjust(gradients, parameters, begun, brought)
        sgd_(parameters, gradients, momentum, settings)
        summed += step_losses
    counted = torch.tensor([settings.squared_of(steps) for steps in batches.steps.tolist()])
    flat = [(each.flatten(2) / counted.to(each).view(1, -1, 1)).transpose(0, 1) for each in squares]
    return _outcomes(batches, names, current, losses, flat)


def _first(count: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor[:count] for tensor in tensors]


def stacks(
    models: Sequence[Mapping[str, NDArray[Any]]], names: Sequence[str], device: torch.device
) -> list[torch.Tensor]:
    """Return arrays of all clients, a tensor per name, for reading only."""
    first = models[0]
    if all(model is first for model in models):
        shared = [torch.from_numpy(first[name]).to(device) for name in names]
        return [tensor.expand(len(models), *tensor.shape) for tensor in shared]
    return [
        torch.stack([torch.from_numpy(model[name]) for model in models]).to(device)
        for name in names
    ]


def _outcomes(
    batches: _Batches,
    names: list[str],
    current: list[torch.Tensor],
    losses: torch.Tensor,
    squares: list[torch.Tensor],
) -> Outcomes:
    rows = np.argsort(batches.order)
    means = losses.cpu().numpy() / batches.steps
    return Outcomes(
        {
            name: _in_order(tensor.cpu().numpy(), rows)
            for name, tensor in zip(names, current, strict=True)
        },
        means[rows].tolist(),
        batches.sizes[rows].tolist(),
        batches.steps[rows].tolist(),
        _in_order(torch.cat(squares, dim=2).cpu().numpy(), rows) if squares else None,
    )


def _in_order(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return an array by rows, without a copy if they are in order already."""
    return array if (rows[:-1] < rows[1:]).all() else array[rows]
