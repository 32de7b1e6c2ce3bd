"""Heads for the features of a frozen backbone."""

from collections.abc import Sequence

from torch import nn


def three_layers(input_shape: Sequence[int], num_classes: int) -> nn.Sequential:
    """Return a head of three linear layers, as VGG16 has, at the width of the features."""
    (size,) = input_shape
    return nn.Sequential(
        nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, num_classes)
    )
