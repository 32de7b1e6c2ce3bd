"""The same model in a form that the CPU trains faster; what it computes is the same.

The gradient of ReLU on the large image in front of a pooling can cost as much as a convolution of a
small network. So pooling comes before ReLU: the largest of a window is the same before and after,
and so are all gradients, to the last bit.

Weights stored channels last would save more, but PyTorch 2.13 crashed in the backward pass of a
frozen convolution in that form.
"""

import copy
import itertools

from torch import nn

from .placement import device_of


def quick_form(model: nn.Module) -> nn.Module:
    """Return a copy to train, with the same names and outputs; the model itself if none is faster.

    Examples
    --------
    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2))
    >>> [type(layer).__name__ for layer in quick_form(model)]
    ['Conv2d', 'MaxPool2d', 'ReLU']
    >>> linear = nn.Sequential(nn.Linear(2, 2))
    >>> quick_form(linear) is linear
    True
    """
    if device_of(model).type != "cpu" or not _pools_images(model):
        return model
    quick = copy.deepcopy(model)
    _pool_first(quick)
    return quick


def _pools_images(model: nn.Module) -> bool:
    return {nn.Conv2d, nn.MaxPool2d} <= {type(layer) for layer in model.modules()}


def _pool_first(chain: nn.Module) -> None:
    """Swap each ReLU with the pooling that follows it: values and gradients stay the same.

    Only in chains of chains: another kind of module may ask for one of its layers by number.
    """
    if type(chain) is not nn.Sequential:
        return
    for layer in chain:
        _pool_first(layer)
    for first, second in itertools.pairwise(list(chain._modules)):
        relu, pool = chain._modules[first], chain._modules[second]
        if type(relu) is not nn.ReLU or type(pool) is not nn.MaxPool2d or pool.return_indices:
            continue
        if not (_watched(relu) or _watched(pool)):
            chain._modules[first], chain._modules[second] = pool, relu


def _watched(layer: nn.Module) -> bool:
    """Return whether somebody looks at what passes through a layer."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
