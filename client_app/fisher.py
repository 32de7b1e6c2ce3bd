"""How much each parameter matters to a client: the diagonal of the empirical Fisher information.

*Index-Overlap Similarity* (IOS), section 3.1: the mean over samples of the SQUARED gradient of each
sample's loss. It is neither the square of the mean gradient, in which samples cancel, nor a mean of
absolute values. One forward and one backward pass over a batch are enough where all layers are of
kinds that ``layer_squares.py`` knows; any other model goes through torch.func.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from client_app.layer_squares import Rule, rule_for

Loss = Callable[[Tensor, Tensor], Tensor]

_NUMBERS_AT_ONCE = 2**26  # of per-sample gradients of a whole model: 256 MiB


def fisher_diagonal(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, batch_size: int = 64
) -> NDArray[Any]:
    """Return the mean of squared per-sample gradients, flat over the trainable parameters in order.

    The model is in evaluation mode meanwhile, so that a sample's gradient depends on it alone, and
    is left as it was.

    Parameters
    ----------
    model : Module
        Samples are along the first dimension of its inputs and outputs, and of those of its layers.
    loss : callable
        Takes outputs and targets of any number of samples; whether it returns their mean, their sum
        or one number each does not matter.
    inputs, targets : tensors or arrays, shape (n, ...)
        The samples.
    batch_size : int
        Samples in one pass; bounds the memory.

    Examples
    --------
    >>> model = nn.Linear(2, 1, bias=False)
    >>> mean = lambda outputs, targets: (outputs * targets).mean()
    >>> fisher_diagonal(model, mean, [[1.0, 2.0], [-1.0, 2.0]], [[1.0], [1.0]])
    array([1., 4.], dtype=float32)
    """
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
    if not parameters:
        raise ValueError("model: expected trainable parameters, found none")
    device = next(iter(parameters.values())).device
    samples, labels = (torch.as_tensor(each, device=device) for each in (inputs, targets))
    if samples.ndim == 0 or not 0 < len(samples) == labels.shape[:1].numel():
        raise ValueError(
            f"inputs, targets: expected as many of both and at least one, "
            f"got shapes {tuple(samples.shape)} and {tuple(labels.shape)}"
        )
    if batch_size < 1:
        raise ValueError(f"batch_size: expected 1 or more, got {batch_size}")
    total: Tensor | None = None
    with _evaluating(model), torch.enable_grad():
        for start in range(0, len(samples), batch_size):
            batch = (samples[start : start + batch_size], labels[start : start + batch_size])
            squares = _by_layers(model, loss, *batch)
            if squares is None:
                squares = _by_samples(model, loss, *batch)
            flat = torch.cat([squares[name].flatten() for name in parameters])
            total = flat if total is None else total.add_(flat)
    assert total is not None
    return np.asarray(total.div_(len(samples)).cpu().numpy())


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and each of its modules back into the mode it had."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _by_layers(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor
) -> dict[str, Tensor] | None:
    """Return the sums of squares by the layers' rules, or None if these do not apply."""
    rules = _rules(model)
    if rules is None:
        return None
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in rules}
    edges: dict[str, GradientEdge] = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def note(_: nn.Module, given: tuple[Tensor, ...], returned: Tensor) -> None:
            calls[name].append((given[0].detach(), returned))
            if returned.requires_grad:  # before another module can change it in place
                edges[name] = get_gradient_edge(returned)

        return note

    handles = [model.get_submodule(name).register_forward_hook(watch(name)) for name in rules]
    try:
        outputs = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if edges.keys() != rules.keys() or not all(_once(call, len(inputs)) for call in calls.values()):
        return None
    total = _sum_of_losses(loss, outputs, targets)
    behind = torch.autograd.grad(total, list(edges.values()), materialize_grads=True)
    squares: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, gradient in zip(edges, behind, strict=True):
            of_layer = rules[name](model.get_submodule(name), calls[name][0][0], gradient)
            prefix = f"{name}." if name else ""
            squares |= {prefix + parameter: value for parameter, value in of_layer.items()}
    return squares


def _rules(model: nn.Module) -> dict[str, Rule] | None:
    """Return the rule of each layer that is trained, or None if one has none or shares weights."""
    everything = dict(model.named_parameters(remove_duplicate=False))
    if len(everything) > len(list(model.parameters())):
        return None
    rules: dict[str, Rule] = {}
    for name, module in model.named_modules():
        if any(each.requires_grad for each in module.parameters(recurse=False)):
            rule = rule_for(module)
            if rule is None:
                return None
            rules[name] = rule
    return rules


def _once(calls: list[tuple[Tensor, Tensor]], samples: int) -> bool:
    """Tell whether a layer was called once, with a batch of samples."""
    return len(calls) == 1 and calls[0][0].ndim > 1 and calls[0][0].shape[0] == samples


def _sum_of_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of each sample's own loss, whatever the loss does with several samples."""
    if loss is functional.cross_entropy:  # the usual one, for which there is a shorter way
        return functional.cross_entropy(outputs, targets, reduction="sum")

    def of_one(output: Tensor, target: Tensor) -> Tensor:
        return loss(output.unsqueeze(0), target.unsqueeze(0)).sum()

    losses: Tensor = vmap(of_one)(outputs, targets)
    return losses.sum()


def _by_samples(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return the sums of squares of any model that torch.func can differentiate."""
    trained = {name: each.detach() for name, each in model.named_parameters() if each.requires_grad}

    def of_one(parameters: dict[str, Tensor], sample: Tensor, target: Tensor) -> Tensor:
        output = functional_call(model, parameters, (sample.unsqueeze(0),))
        return loss(output, target.unsqueeze(0)).sum()

    squares = {name: torch.zeros_like(each) for name, each in trained.items()}
    step = max(1, _NUMBERS_AT_ONCE // sum(each.numel() for each in trained.values()))
    for start in range(0, len(inputs), step):
        part = (inputs[start : start + step], targets[start : start + step])
        gradients = vmap(grad(of_one), in_dims=(None, 0, 0))(trained, *part)
        for name, square in squares.items():
            square += gradients[name].square().sum(dim=0)
    return squares
