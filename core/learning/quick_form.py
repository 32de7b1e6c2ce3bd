"""The same model in a form that the CPU trains faster; what it computes is the same, bit by bit.

PyTorch's max pooling goes through an image value by value. In a small network it costs as much as
the convolutions. For windows of two by two, :class:`_PooledReLU` does it by whole rows, together
with the ReLU in front of it, in less than half of the time.
"""

import copy
import itertools
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from .placement import device_of

_where_above = torch.ops.aten.threshold_backward  # a gradient where a tensor is above a number


def quick_form(model: nn.Module) -> nn.Module:
    """Return a copy to train, with the same names and outputs; the model itself if none is faster.

    Examples
    --------
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))
    >>> [type(layer).__name__ for layer in quick_form(model)]
    ['Conv2d', 'Identity', '_PooledReLU']
    >>> linear = nn.Sequential(nn.Linear(2, 2))
    >>> quick_form(linear) is linear
    True
    """
    if device_of(model).type != "cpu":
        return model
    quick = copy.deepcopy(model)
    return quick if _pool_quickly(quick) else model


def _pool_quickly(chain: nn.Module) -> bool:
    """Replace each ReLU and the pooling that follows it; tell whether there was one.

    Only in chains of chains: another kind of module may ask for one of its layers by number.
    """
    if type(chain) is not nn.Sequential:
        return False
    found = [_pool_quickly(layer) for layer in chain]
    for first, second in itertools.pairwise(list(chain._modules)):
        relu, pool = chain._modules[first], chain._modules[second]
        if type(relu) is nn.ReLU and _halves(pool) and not (_watched(relu) or _watched(pool)):
            chain._modules[first], chain._modules[second] = nn.Identity(), _PooledReLU()
            found.append(True)
    return any(found)


def _halves(layer: nn.Module | None) -> bool:
    """Return whether a layer is max pooling by windows of two by two, side by side."""
    if type(layer) is not nn.MaxPool2d or layer.return_indices:
        return False
    shape = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return (
        tuple(each if isinstance(each, tuple) else (each, each) for each in shape)
        == (
            (2, 2),
            (2, 2),
            (0, 0),
            (1, 1),
        )
        and not layer.ceil_mode
    )


def _watched(layer: nn.Module | None) -> bool:
    """Return whether somebody looks at what passes through a layer."""
    assert layer is not None
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


class _PooledReLU(nn.Module):
    """ReLU, then the largest of each window of two by two."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image of half the height and width."""
        if x.shape[-1] % 2 or x.shape[-2] % 2 or not x.is_contiguous():
            return functional.max_pool2d(functional.relu(x), 2)
        pooled: torch.Tensor = _Pooling.apply(x)  # type: ignore[no-untyped-call]
        return pooled


class _Pooling(torch.autograd.Function):
    """The larger of the left and right of each pair, then of its upper and lower, then ReLU.

    Where values are equal, the gradient goes to the upper one, then to the left one, as in
    PyTorch's pooling.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Pool; ReLU comes last, when there is a quarter of the values left."""
        wider = torch.maximum(x[..., 0::2], x[..., 1::2])
        out = torch.maximum(wider[..., 0::2, :], wider[..., 1::2, :]).clamp_min_(0)
        ctx.save_for_backward(x, wider, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Hand each gradient to the value that was the largest."""
        x, wider, out = ctx.saved_tensors
        gradient = _where_above(gradient, out, 0)
        lower = _where_above(gradient, wider[..., 1::2, :] - wider[..., 0::2, :], 0)
        to_wider = torch.empty_like(wider)
        torch.sub(gradient, lower, out=to_wider[..., 0::2, :])
        to_wider[..., 1::2, :] = lower
        right = _where_above(to_wider, x[..., 1::2] - x[..., 0::2], 0)
        to_x = torch.empty_like(x)
        torch.sub(to_wider, right, out=to_x[..., 0::2])
        to_x[..., 1::2] = right
        return to_x
