"""Convolutional networks that are small enough to be trained from scratch on a device."""

from torch import nn

from .spec import ModelSpec

# Two 5 x 5 convolutions, each followed by halving, leave one pixel of 16 (16 -> 12 -> 6 -> 2 -> 1).
# Smaller images are padded so that only the halvings shrink them, down to 4 pixels (4 -> 2 -> 1).
_SMALLEST_UNPADDED = 16
_SMALLEST_PADDED = 4


def cnn(spec: ModelSpec) -> nn.Sequential:
    """Build GCFL's two-layer CNN: 3,353,034 parameters on 32 x 32 x 3 images of 10 classes.

    There is no activation between the two linear layers, as in the paper's experiments.
    """
    return _two_convolutions(spec, first=32, second=64, width=2048)


def lenet(spec: ModelSpec) -> nn.Sequential:
    """Build ODE's LeNet: convolutions to 6 and 16 channels, then 256-84-10 on 28 x 28 x 1 images.

    There is no activation between the two linear layers, as in the paper's experiments.
    """
    return _two_convolutions(spec, first=6, second=16, width=84)


def small_cnn(spec: ModelSpec) -> nn.Sequential:
    """Build a compact CNN: 206,922 parameters on 28 x 28 x 1 images of 10 classes."""
    channels, height, width = spec.image(_SMALLEST_PADDED)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 128),
        nn.ReLU(),
        nn.Linear(128, spec.num_classes),
    )


def cnn1d(spec: ModelSpec) -> nn.Sequential:
    """Build a CNN over time for windows of sensor data."""
    channels, time = spec.series(_SMALLEST_PADDED)
    return nn.Sequential(
        nn.Conv1d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Flatten(),
        nn.Linear(64 * (time // 4), 100),
        nn.ReLU(),
        nn.Linear(100, spec.num_classes),
    )


def segmenter(spec: ModelSpec) -> nn.Sequential:
    """Build a small fully convolutional network that gives a class for each pixel."""
    channels, _, _ = spec.image()
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=2, dilation=2),
        nn.ReLU(),
        nn.Conv2d(16, spec.num_classes, 1),
    )


def _two_convolutions(spec: ModelSpec, first: int, second: int, width: int) -> nn.Sequential:
    channels, *sides = spec.image(_SMALLEST_PADDED)
    padding = 0 if min(sides) >= _SMALLEST_UNPADDED else 2
    lost = 4 - 2 * padding  # pixels per side that one convolution takes away
    rows, columns = (((side - lost) // 2 - lost) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, first, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * rows * columns, width),
        nn.Linear(width, spec.num_classes),
    )
