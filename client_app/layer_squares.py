"""Sums of squared per-sample gradients of one layer, from its inputs and the gradients behind it.

The gradient of a sample in a layer's weight is an outer product of what the layer was given and the
gradient in what it returned. So the squares of all samples come from a few batched products, and
no pass per sample is needed. Samples are along the first dimension of all tensors.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

Squares = dict[str, Tensor]
Rule = Callable[[nn.Module, Tensor, Tensor], Squares]

_NUMBERS_AT_ONCE = 2**20  # of per-sample gradients and what they are made from: what a cache holds


def rule_for(module: nn.Module) -> Rule | None:
    """Return the function that applies to a layer, or None if there is none for its kind.

    >>> rule_for(nn.Linear(2, 3)) is not None, rule_for(nn.LSTM(2, 3)) is not None
    (True, False)
    """
    if isinstance(module, nn.Conv1d | nn.Conv2d) and (
        isinstance(module.padding, str) or module.padding_mode != "zeros"
    ):
        return None
    if isinstance(module, nn.Embedding) and (module.max_norm or module.scale_grad_by_freq):
        return None
    if isinstance(module, _BATCH_NORMS) and module.running_mean is None:
        return None  # each sample's output then depends on the others
    return _RULES.get(type(module))  # a subclass may compute something else


def _linear(layer: nn.Module, given: Tensor, behind: Tensor) -> Squares:
    if given.ndim == 2:  # the square of an outer product is the outer product of the squares
        squared = behind.square()
        return {"weight": squared.T @ given.square(), "bias": squared.sum(dim=0)}
    given, behind = given.flatten(1, -2), behind.flatten(1, -2)
    total = torch.zeros_like(layer.weight)
    for part in _parts(given.shape[0], total.numel()):
        total += _sum_of_squares(behind[part].transpose(1, 2) @ given[part])
    return {"weight": total, "bias": _sum_of_squares(behind.sum(dim=1))}


def _convolution(layer: nn.Module, given: Tensor, behind: Tensor) -> Squares:
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    shape, groups = layer.weight.shape, layer.groups
    settings = {name: getattr(layer, name) for name in ("dilation", "padding", "stride")}
    kernel = tuple(layer.kernel_size)
    if given.ndim == 3:  # a signal is an image of height 1
        given = given.unsqueeze(2)
        kernel, neutral = (1, *kernel), {"dilation": 1, "padding": 0, "stride": 1}
        settings = {name: (neutral[name], *values) for name, values in settings.items()}
    behind = behind.flatten(2)
    outputs, inputs = behind.shape[1] // groups, shape[1:].numel()
    total = torch.zeros(groups, outputs, inputs, dtype=behind.dtype, device=behind.device)
    places = behind.shape[2]
    for part in _parts(given.shape[0], layer.weight.numel() + groups * inputs * places):
        windows = functional.unfold(given[part], kernel, **settings)
        windows = windows.unflatten(1, (groups, inputs)).transpose(2, 3)
        gradients = behind[part].unflatten(1, (groups, outputs)) @ windows
        total += _sum_of_squares(gradients)
    return {"weight": total.reshape(shape), "bias": _sum_of_squares(behind.sum(dim=2))}


def _embedding(layer: nn.Module, given: Tensor, behind: Tensor) -> Squares:
    assert isinstance(layer, nn.Embedding)
    tokens, gradients = given.flatten(1), behind.reshape(-1, behind.shape[-1])
    if layer.padding_idx is not None:
        gradients = gradients * (tokens.flatten() != layer.padding_idx).unsqueeze(1)
    # A token that a sample holds several times has one gradient, the sum.
    samples = torch.arange(len(tokens), device=tokens.device).unsqueeze(1)
    held, places = torch.unique(samples * layer.num_embeddings + tokens, return_inverse=True)
    per_sample = gradients.new_zeros(held.numel(), gradients.shape[1])
    per_sample.index_add_(0, places.flatten(), gradients)
    total = torch.zeros_like(layer.weight)
    return {"weight": total.index_add_(0, held % layer.num_embeddings, per_sample.square())}


def _normalisation(layer: nn.Module, given: Tensor, behind: Tensor) -> Squares:
    """Return the squares of scale and shift, which multiply and follow the normalised input."""
    if isinstance(layer, nn.LayerNorm):
        normalised = functional.layer_norm(given, layer.normalized_shape, eps=layer.eps)
        extra = range(1, given.ndim - len(layer.normalized_shape))
    elif isinstance(layer, nn.GroupNorm):
        normalised = functional.group_norm(given, layer.num_groups, eps=layer.eps)
        extra = range(2, given.ndim)
    else:
        assert isinstance(layer, _BATCH_NORMS)
        normalised = functional.batch_norm(
            given, layer.running_mean, layer.running_var, eps=layer.eps
        )
        extra = range(2, given.ndim)
    dims = tuple(extra)
    scale, shift = behind * normalised, behind
    if dims:
        scale, shift = scale.sum(dim=dims), shift.sum(dim=dims)
    return {"weight": _sum_of_squares(scale), "bias": _sum_of_squares(shift)}


def _sum_of_squares(gradients: Tensor) -> Tensor:
    return gradients.square().sum(dim=0)


def _parts(samples: int, numbers: int) -> Iterator[slice]:
    """Cut samples that need ``numbers`` each into parts that are small enough."""
    step = max(1, _NUMBERS_AT_ONCE // numbers)
    return (slice(start, start + step) for start in range(0, samples, step))


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _normalisation,
    nn.GroupNorm: _normalisation,
    nn.BatchNorm1d: _normalisation,
    nn.BatchNorm2d: _normalisation,
}
