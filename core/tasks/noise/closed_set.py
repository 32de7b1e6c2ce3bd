"""Closed-set label noise: wrong labels out of the right label set (GCFL, section 6.4)."""

import numpy as np
from numpy.typing import NDArray

from ..errors import TaskError
from .noisy import NoiseSettings, Noisy, draw_affected


def corrupt(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    settings: NoiseSettings,
    rng: np.random.Generator,
) -> Noisy:
    """Give ``int(n * rate)`` samples a label drawn evenly from the other classes."""
    if settings.num_classes < 2:
        raise TaskError("noise = 'closed-set' needs at least 2 classes, the data has 1")
    affected = draw_affected(len(y), settings.rate, rng)
    shift = rng.integers(1, settings.num_classes, len(y))
    flipped = np.where(affected, (y + shift) % settings.num_classes, y)
    return Noisy(x, flipped, y, ~affected)
