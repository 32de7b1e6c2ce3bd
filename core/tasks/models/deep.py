"""torchvision's deep networks with random weights, for images with any number of channels."""

from functools import partial

import torch
from torch import nn

from ..torchvision_compat import torchvision
from .spec import ModelSpec

# VGG halves the image five times; a ResNet's convolutions are padded and never run out of pixels.
_SMALLEST_VGG = 32


def resnet(depth: int, spec: ModelSpec) -> nn.Module:
    """Build torchvision's ResNet of `depth` layers.

    On images of 32 x 32 pixels or fewer its last feature map is a single pixel. A batch of one
    sample can then not be trained on, because batch norm cannot normalise a single value.
    """
    channels, _, _ = spec.image()
    return _build(f"resnet{depth}", "conv1", channels, spec.num_classes)


def vgg16(spec: ModelSpec) -> nn.Module:
    """Build torchvision's VGG16 (without batch norm)."""
    channels, _, _ = spec.image(_SMALLEST_VGG)
    return _build("vgg16", "features.0", channels, spec.num_classes)


resnet18 = partial(resnet, 18)
resnet50 = partial(resnet, 50)


def _build(name: str, first_layer: str, channels: int, num_classes: int) -> nn.Module:
    network: nn.Module = torchvision().models.get_model(name, num_classes=num_classes)
    first = network.get_submodule(first_layer)
    assert isinstance(first, nn.Conv2d)  # torchvision's architectures are fixed
    if first.in_channels != channels:
        _read_channels(first, channels)
    return network


def _read_channels(layer: nn.Conv2d, channels: int) -> None:
    """Make a convolution read `channels` channels, with new weights drawn as torchvision does."""
    layer.in_channels = channels
    shape = (layer.out_channels, channels, *layer.kernel_size)
    layer.weight = nn.Parameter(torch.empty(shape))
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
