"""Heads for the features of a frozen backbone."""

from collections.abc import Sequence

import torch
from torch import nn


class Logistic(nn.Module):
    """Logistic regression with one output, as two classes of which the first has logit 0."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two logits."""
        one = self.linear(x)
        return torch.cat([torch.zeros_like(one), one], dim=1)


def logistic(input_shape: Sequence[int], num_classes: int) -> Logistic:
    """Return what FLamby trains on Fed-Heart-Disease."""
    return Logistic(*input_shape)


def three_layers(input_shape: Sequence[int], num_classes: int) -> nn.Sequential:
    """Return a head of three linear layers, as VGG16 has, at the width of the features."""
    (size,) = input_shape
    return nn.Sequential(
        nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, num_classes)
    )
