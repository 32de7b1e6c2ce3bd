"""Stacks of clients for any model that torch can vectorise: ``vmap`` over ``grad``.

Chains of linear layers have gradients written out by hand (:mod:`core.learning.stack`). Others,
with convolutions, embeddings, layer norm or attention, get theirs from ``torch.func``. Not every
model can be vectorised, and one that mixes the samples of a batch would see those that fill up a
short batch: so a model is first tried out on a few samples, against what autograd says.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from ..tasks.errors import one_line
from ..tasks.problems import Problem
from .job import Job
from .model_arrays import device_of, load_arrays, training_mode, travelling
from .stack import Tensors

_FEW = 3  # samples of the trial; one of them fills up a short batch


@dataclass(frozen=True)
class Trial:
    """Why clients cannot be stacked, if not; bytes per sample kept for the backward pass."""

    reason: str = ""
    saved: float = 0.0


def vmapped_gradients(
    model: nn.Module,
    parameters: Tensors,
    x: torch.Tensor,
    y: torch.Tensor,
    weights: torch.Tensor,
    problem: Problem,
) -> tuple[torch.Tensor, Tensors]:
    """Return what :func:`core.learning.stack.stacked_gradients` does, for other models."""

    def loss(own: Tensors, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        outputs = functional_call(model, own, (x,))
        return (problem.checked_loss(outputs, y) * weights).sum()

    gradients, losses = vmap(grad_and_value(loss))(parameters, x, y, weights)
    return losses, gradients


def may_vmap(model: nn.Module) -> bool:
    """Return whether all that training changes are parameters: no running statistics."""
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    return set(trained) == set(travelling(model))


def tried(model: nn.Module, problem: Problem, jobs: Sequence[Job]) -> Trial:
    """Try a model out on a few samples of a client; it is left with that client's arrays."""
    job = max(jobs, key=lambda job: len(job.data))
    load_arrays(model, job.arrays)
    training_mode(model)
    device = device_of(model)
    x, y = job.data.x[:_FEW].to(device), job.data.y[:_FEW].to(device)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            wrong = _differing(model, problem, x, y)
        if any("batching rule" in str(warning.message) for warning in said):
            return Trial("a part of it is computed client by client in any case")
        if wrong:
            return Trial(f"the gradient of {wrong} is not the same in a stack")
        return Trial(saved=_saved_bytes(model, x) / len(x))
    except Exception as error:  # whatever a user's own model raises
        return Trial(f"{type(error).__name__}: {one_line(error)}")


def _differing(model: nn.Module, problem: Problem, x: torch.Tensor, y: torch.Tensor) -> str:
    """Return a parameter whose gradient differs in a stack of two, the second's batch filled up."""
    full = len(y)
    counts = (full, max(1, full - 1))
    weights = torch.stack([(torch.arange(full) < count) / count for count in counts]).to(x.device)
    named = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    stacked = {name: torch.stack([p, 0.9 * p]) for name, p in named.items()}
    with torch.no_grad():
        both = torch.stack([x, x]), torch.stack([y, y])
        _, found = vmapped_gradients(model, stacked, *both, weights, problem)
    for row, count in enumerate(counts):
        own = {name: tensor[row].clone().requires_grad_() for name, tensor in stacked.items()}
        losses = problem.checked_loss(functional_call(model, own, (x[:count],)), y[:count])
        right = torch.autograd.grad(losses.mean(), list(own.values()), materialize_grads=True)
        for name, gradient in zip(own, right, strict=True):
            tolerance = 1e-5 * (1 + float(gradient.abs().max()))
            if not torch.allclose(found[name][row], gradient, rtol=1e-3, atol=tolerance):
                return name
    return ""


def _saved_bytes(model: nn.Module, x: torch.Tensor) -> int:
    """Return how much a forward pass keeps for the backward pass, besides the parameters."""
    kept: dict[int, int] = {}  # by address: layers keep the same tensor, or views of it

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = model(x.clone())  # as long as this lives, so does what is kept
    for parameter in model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    del outputs
    return sum(kept.values())
