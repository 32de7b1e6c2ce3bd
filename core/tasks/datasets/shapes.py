"""Discs and squares on a noisy ground, drawn on the spot: a segmentation into three classes."""

import numpy as np
from numpy.typing import NDArray

from ..spec import TaskSpec
from ..splits import generator
from .raw import RawData

SIDE = 16
TRAIN, TEST = 400, 100
GROUND, DISC, SQUARE = 0, 1, 2


def load(spec: TaskSpec) -> RawData:
    """Draw images of 16 x 16 pixels with a disc and a square each, by the task's seed."""
    rng = generator(spec.seed, "shapes")
    (x_train, y_train), (x_test, y_test) = _draw(TRAIN, rng), _draw(TEST, rng)
    return RawData(x_train, y_train, x_test, y_test, num_classes=3, problem="segmentation")


def _draw(count: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return images (count, 1, 16, 16) and the class of each pixel."""
    row, column = np.mgrid[:SIDE, :SIDE]
    centres = rng.uniform(3, SIDE - 3, size=(count, 2, 2, 1, 1))
    sizes = rng.uniform(2, 4, size=(count, 2, 1, 1))
    away = np.stack([row, column]) - centres  # (count, shape, axis, row, column)
    disc = np.hypot(away[:, 0, 0], away[:, 0, 1]) <= sizes[:, 0]
    square = np.abs(away[:, 1]).max(axis=1) <= sizes[:, 1]
    classes = np.where(square, SQUARE, np.where(disc, DISC, GROUND))
    brightness = np.array([0.2, 0.6, 0.9])[classes]
    images = brightness + rng.normal(scale=0.15, size=classes.shape)
    return images[:, None].astype(np.float32), classes.astype(np.int64)
