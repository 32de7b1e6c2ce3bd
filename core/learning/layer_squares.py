"""Sums of squared per-sample gradients of one layer, from its inputs and the gradients behind it.

The gradient of a sample in a layer's weight is an outer product of what the layer was given and the
gradient in what it returned. So the squares of all samples come from a few batched products.
Samples are along the first dimension of all tensors. Rules add to totals that they are given.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

Totals = dict[str, Tensor]  # of a layer's trained parameters, by the names they have in it
Rule = Callable[[nn.Module, Tensor, Tensor, Totals], None]

_NUMBERS_AT_ONCE = 2**18  # of per-sample gradients, or what they are made from: what a cache holds
_FEW_PLACES = 4


def rule_for(module: nn.Module) -> Rule | None:
    """Return the function that applies to a layer, or None if there is none for its kind."""
    if isinstance(module, nn.Conv1d | nn.Conv2d) and (
        isinstance(module.padding, str) or module.padding_mode != "zeros"
    ):
        return None
    if isinstance(module, nn.Embedding) and (module.max_norm or module.scale_grad_by_freq):
        return None
    if isinstance(module, _BATCH_NORMS) and module.running_mean is None:
        return None  # each sample's output then depends on the others
    return _RULES.get(type(module))  # a subclass may compute something else


def _linear(layer: nn.Module, given: Tensor, behind: Tensor, totals: Totals) -> None:
    if given.ndim == 2:  # the square of an outer product is the outer product of the squares
        squared = behind.square()
        if "weight" in totals:
            totals["weight"].addmm_(squared.T, given.square())
        _add(totals, bias=squared.sum(dim=0))
        return
    given, behind = (each.reshape(len(each), 1, -1, each.shape[-1]) for each in (given, behind))
    weight = _weight_squares(behind.transpose(2, 3), given.transpose(2, 3))
    _add(totals, weight=weight[0], bias=_sum_of_squares(behind.sum(dim=(1, 2))))


def _convolution(layer: nn.Module, given: Tensor, behind: Tensor, totals: Totals) -> None:
    assert isinstance(layer, nn.Conv1d | nn.Conv2d)
    shape, groups, places = layer.weight.shape, layer.groups, behind.shape[2:]
    inputs = shape[1:].numel()
    behind = behind.reshape(len(behind), groups, shape[0] // groups, -1)
    for part in _parts(len(given), groups * inputs * places.numel()):
        windows = _windows(layer, given[part], places)
        windows = windows.reshape(-1, groups, inputs, places.numel())
        _add(totals, weight=_weight_squares(behind[part], windows).reshape(shape))
    _add(totals, bias=_sum_of_squares(behind.sum(dim=3).flatten(1)))


def _weight_squares(behind: Tensor, given: Tensor) -> Tensor:
    """Sum, over samples, the square of the sum over places of outer products."""
    samples, groups, outputs, places = behind.shape
    if places <= _FEW_PLACES:
        # Multiplied out, the square is a sum over pairs of places: one product, nothing per sample.
        left, right = (_pairs(each).permute(1, 0, 3, 2).flatten(1, 2) for each in (behind, given))
        return (left.transpose(1, 2) @ right).clamp_(min=0)  # what rounding may fall below
    total = behind.new_zeros(groups, outputs, given.shape[2])
    for part in _parts(samples, total.numel()):
        total += _sum_of_squares(behind[part] @ given[part].transpose(2, 3))
    return total


def _pairs(values: Tensor) -> Tensor:
    """Return the products of all pairs of places, so that those of two tensors give the square."""
    places = values.shape[-1]
    if places == 1:
        return values.square()
    first, second = torch.triu_indices(places, places, device=values.device)
    # Once in each tensor, half each
    twice = torch.where(first < second, math.sqrt(2.0), 1.0).to(values.dtype)
    return values[..., first] * values[..., second] * twice


def _windows(layer: nn.Conv1d | nn.Conv2d, given: Tensor, places: torch.Size) -> Tensor:
    """Return a view of what the kernel saw: sample, channel, place in the kernel, place of it."""
    assert not isinstance(layer.padding, str)  # see rule_for
    sides = [side for side in reversed(layer.padding) for _ in range(2)]  # the last side first
    padded = functional.pad(given, sides).contiguous()
    in_kernel = [step * gap for step, gap in zip(padded.stride()[2:], layer.dilation, strict=True)]
    of_kernel = [step * gap for step, gap in zip(padded.stride()[2:], layer.stride, strict=True)]
    size = (*padded.shape[:2], *layer.kernel_size, *places)
    return padded.as_strided(size, (*padded.stride()[:2], *in_kernel, *of_kernel))


def _embedding(layer: nn.Module, given: Tensor, behind: Tensor, totals: Totals) -> None:
    assert isinstance(layer, nn.Embedding)
    tokens, gradients = given.flatten(1), behind.reshape(-1, behind.shape[-1])
    if layer.padding_idx is not None:
        gradients = gradients * (tokens.flatten() != layer.padding_idx).unsqueeze(1)
    # A token that a sample holds several times has one gradient, the sum.
    samples = torch.arange(len(tokens), device=tokens.device).unsqueeze(1)
    held, places = torch.unique(samples * layer.num_embeddings + tokens, return_inverse=True)
    per_sample = gradients.new_zeros(held.numel(), gradients.shape[1])
    per_sample.index_add_(0, places.flatten(), gradients)
    totals["weight"].index_add_(0, held % layer.num_embeddings, per_sample.square())


def _normalisation(layer: nn.Module, given: Tensor, behind: Tensor, totals: Totals) -> None:
    """Add the squares of scale and shift, which multiply and follow the normalised input."""
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
    _add(totals, weight=_sum_of_squares(scale), bias=_sum_of_squares(shift))


def _add(totals: Totals, **squares: Tensor) -> None:
    """Add the squares of those parameters that are trained."""
    for name in totals.keys() & squares.keys():
        totals[name] += squares[name]


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
