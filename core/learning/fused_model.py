"""The same model in a form that the CPU trains faster.

Two things cost as much as the convolutions of a small network. Images are kept by channel, so that
each convolution rearranges them for itself, and ReLU looks at all values, of which pooling then
keeps a quarter. The quick form keeps images by pixel ("channels last"), and pooling comes before
ReLU: the largest value stays the largest. What it computes is the same up to the order of sums.
"""

import copy
import itertools

import torch
from torch import nn

from .model_arrays import device_of

_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


def fused_model(model: nn.Module) -> nn.Module:
    """Return a copy to train, with the same names and outputs; the model itself if none is faster.

    Only of chains of PyTorch's own layers: other modules may ask for a layer by number.
    """
    if device_of(model).type != "cpu" or not _is_chain(model) or not _has_convolutions(model):
        return model
    quick = copy.deepcopy(model)
    quick.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    _pool_first(quick)
    return quick


def _is_chain(module: nn.Module) -> bool:
    """Return whether a module is a layer of PyTorch's, or a chain of them, and nobody watches."""
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        return False
    if type(module) is nn.Sequential:
        return all(_is_chain(layer) for layer in module)
    return type(module).__module__.startswith("torch.nn.") and not list(module.children())


def _has_convolutions(chain: nn.Module) -> bool:
    """Return whether there are convolutions, all trained: frozen ones have crashed PyTorch."""
    found = [layer for layer in chain.modules() if isinstance(layer, _CONVOLUTIONS)]
    return bool(found) and all(p.requires_grad for layer in found for p in layer.parameters())


def _pool_first(chain: nn.Module) -> None:
    """Let each ReLU and the max pooling that follows it change places."""
    if type(chain) is not nn.Sequential:
        return
    for layer in chain:
        _pool_first(layer)
    for first, second in itertools.pairwise(list(chain._modules)):
        relu, pool = chain._modules[first], chain._modules[second]
        if type(relu) is nn.ReLU and type(pool) is nn.MaxPool2d and not pool.return_indices:
            chain._modules[first], chain._modules[second] = pool, relu
