"""How much each parameter matters to a client: the diagonal of the empirical Fisher information.

*Index-Overlap Similarity* (IOS), section 3.1: the mean over samples of the SQUARED gradient of each
sample's loss. It is neither the square of the mean gradient, in which samples cancel, nor a mean of
absolute values. One forward and one backward pass over a batch are enough where all layers are of
kinds that ``layer_squares.py`` knows; any other model goes through torch.func.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from ..tasks import Samples
from .layer_squares import Rule, rule_for
from .model_arrays import device_of, load_arrays
from .pools import Arrays, Pool, pools, stack_limit, stackable, stacked_parameters
from .stack import chain_backward, chain_forward

Loss = Callable[[Tensor, Tensor], Tensor]

_NUMBERS_AT_ONCE = 2**26  # of per-sample gradients of a whole model: 256 MiB


def fisher_diagonal(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, batch_size: int = 64
) -> NDArray[Any]:
    """Return the mean of squared per-sample gradients, flat over the trainable parameters in order.

    The model is in evaluation mode meanwhile, and left as it was. Samples are along the first
    dimension of all tensors. The loss returns their mean, their sum or one each.
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
    flat, totals = _zeros_like(parameters)
    layers = _layers(model, totals)
    with _evaluating(model), torch.enable_grad():
        for start in range(0, len(samples), batch_size):
            batch = (samples[start : start + batch_size], labels[start : start + batch_size])
            if layers is None or not _add_by_layers(layers, model, loss, *batch):
                _add_by_samples(totals, model, loss, *batch)
    return np.asarray(flat.div_(len(samples)).cpu().numpy())


def fisher_diagonals(
    model: nn.Module, loss: Loss, arrays: Sequence[Arrays], data: Sequence[Samples]
) -> NDArray[np.float32]:
    """Return :func:`fisher_diagonal` of each client; chains of linear layers many at once."""
    chain = stackable(model, data)
    size = sum(each.numel() for each in model.parameters() if each.requires_grad)
    found = np.empty((len(data), size), dtype=np.float32)
    keys = [0] * len(data) if chain else list(range(len(data)))
    for pool in pools(keys, data, stack_limit(model)):
        if isinstance(pool, int):
            load_arrays(model, arrays[pool])
            found[pool] = fisher_diagonal(model, loss, data[pool].x, data[pool].y)
        else:
            found[pool.clients] = _of_pool(model, loss, arrays, pool)
    return found


@torch.no_grad()
def _of_pool(model: nn.Module, loss: Loss, arrays: Sequence[Arrays], pool: Pool) -> NDArray[Any]:
    """Return the diagonals of a pool's clients, whose model is a chain of linear layers."""
    parameters = stacked_parameters(model, arrays, pool)
    device = device_of(model)
    seen = chain_forward(model, parameters, pool.padded(pool.x).to(device))
    used = pool.used.to(device)
    with torch.enable_grad():
        outputs = seen[-1].mT[used].requires_grad_()
        total = sum_of_losses(loss, outputs, pool.y.to(device))
        (behind,) = torch.autograd.grad(total, outputs)
    squares: dict[str, Tensor] = {}
    for name, given, delta in chain_backward(model, parameters, seen, pool.padded(behind).mT):
        # Zero where a place holds no sample; the square of an outer product is that of the squares
        squared = delta.square()
        squares[f"{name}.weight"] = torch.bmm(squared, given.square().mT)
        squares[f"{name}.bias"] = squared.sum(2)
    sizes = torch.from_numpy(pool.sizes).to(device)
    flat = torch.cat([squares[name].flatten(1) for name in parameters], dim=1)
    return np.asarray(flat.div_(sizes.unsqueeze(1)).cpu().numpy())


def trainable_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters that are trained, by name."""
    return {name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad}


def _zeros_like(parameters: dict[str, nn.Parameter]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return a flat tensor of zeros, and a view of it in the shape of each parameter."""
    sizes = [each.numel() for each in parameters.values()]
    flat = next(iter(parameters.values())).new_zeros(sum(sizes))
    parts = zip(parameters.items(), torch.split(flat, sizes), strict=True)
    return flat, {name: part.view(each.shape) for (name, each), part in parts}


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


@dataclass
class _Layer:
    """A layer that is trained, where its squares are added up, and what is seen of it in a pass."""

    module: nn.Module
    rule: Rule
    totals: dict[str, Tensor]
    given: list[Tensor] = field(default_factory=list)
    edge: GradientEdge | None = None

    def note(self, _: nn.Module, given: tuple[Tensor, ...], returned: Tensor) -> None:
        """Remember one call of the layer."""
        self.given.append(given[0].detach())
        if returned.requires_grad:  # before another module can change it in place
            self.edge = get_gradient_edge(returned)

    def called_once(self, samples: int) -> bool:
        """Return whether the layer was called once, with a batch of samples, and has gradients."""
        once = len(self.given) == 1 and self.edge is not None
        return once and self.given[0].ndim > 1 and len(self.given[0]) == samples


def _layers(model: nn.Module, totals: dict[str, Tensor]) -> list[_Layer] | None:
    """Return all layers that are trained, or None if one has no rule or shares its weights."""
    layers: list[_Layer] = []
    seen: set[nn.Parameter] = set()
    for path, module in model.named_modules():
        own = {
            name: each
            for name, each in module.named_parameters(recurse=False)
            if each.requires_grad
        }
        if not own:
            continue
        rule = rule_for(module)
        if rule is None or not seen.isdisjoint(own.values()):
            return None
        seen.update(own.values())
        prefix = f"{path}." if path else ""
        layers.append(_Layer(module, rule, {name: totals[prefix + name] for name in own}))
    return layers


def _add_by_layers(
    layers: list[_Layer], model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor
) -> bool:
    """Add the squares of a batch by the layers' rules; return whether these apply."""
    handles = [layer.module.register_forward_hook(layer.note) for layer in layers]
    try:
        outputs = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    applies = all(layer.called_once(len(inputs)) for layer in layers)
    if applies:
        total = sum_of_losses(loss, outputs, targets)
        edges = [layer.edge for layer in layers if layer.edge is not None]
        behind = torch.autograd.grad(total, edges, materialize_grads=True)
        with torch.no_grad():
            for layer, gradient in zip(layers, behind, strict=True):
                layer.rule(layer.module, layer.given[0], gradient, layer.totals)
    for layer in layers:
        layer.given, layer.edge = [], None
    return applies


def sum_of_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of each sample's own loss, whatever the loss does with several samples."""
    if loss is functional.cross_entropy:  # the usual one, for which there is a shorter way
        return functional.cross_entropy(outputs, targets, reduction="sum")

    each = loss(outputs, targets)
    if each.shape == (len(outputs),):  # one per sample already
        return each.sum()

    def of_one(output: Tensor, target: Tensor) -> Tensor:
        return loss(output.unsqueeze(0), target.unsqueeze(0)).sum()

    losses: Tensor = vmap(of_one)(outputs, targets)
    return losses.sum()


def _add_by_samples(
    totals: dict[str, Tensor], model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor
) -> None:
    """Add the squares of a batch of any model that torch.func can differentiate."""
    trained = {name: each.detach() for name, each in model.named_parameters() if each.requires_grad}

    def of_one(parameters: dict[str, Tensor], sample: Tensor, target: Tensor) -> Tensor:
        output = functional_call(model, parameters, (sample.unsqueeze(0),))
        return loss(output, target.unsqueeze(0)).sum()

    step = max(1, _NUMBERS_AT_ONCE // sum(each.numel() for each in trained.values()))
    for start in range(0, len(inputs), step):
        part = (inputs[start : start + step], targets[start : start + step])
        try:
            gradients = vmap(grad(of_one), in_dims=(None, 0, 0))(trained, *part)
        except RuntimeError:  # some layers, such as recurrent ones, do not support vmap
            _add_one_by_one(totals, model, loss, *part)
            continue
        for name, total in totals.items():
            total += gradients[name].square().sum(dim=0)


def _add_one_by_one(
    totals: dict[str, Tensor], model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor
) -> None:
    """Add the squares of a batch of any model at all: one backward pass per sample."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    for sample, target in zip(inputs, targets, strict=True):
        total = loss(model(sample.unsqueeze(0)), target.unsqueeze(0)).sum()
        gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
        for square, gradient in zip(totals.values(), gradients, strict=True):
            square += gradient.square()
