"""Attribute noise: corrupted inputs under their right labels (GCFL, section 6.4)."""

import numpy as np
from numpy.typing import NDArray

from ..errors import TaskError
from .corruptions import ANY_INPUT, CORRUPTIONS
from .noisy import NoiseSettings, Noisy, draw_affected


def corrupted_inputs(
    x: NDArray[np.float32], y: NDArray[np.int64], settings: NoiseSettings, rng: np.random.Generator
) -> Noisy:
    """Corrupt ``int(n * rate)`` inputs, each by a kind drawn evenly from those that fit.

    Images are (channels, height, width) with 1 or 3 channels in [0, 1]. Other inputs take the
    kinds that act on single values, relative to the range of every feature.
    """
    image = x.ndim == 4 and x.shape[1] in (1, 3)
    kinds = tuple(CORRUPTIONS) if image else ANY_INPUT
    affected = draw_affected(len(y), settings.rate, rng)
    drawn = rng.integers(0, len(kinds), len(y))
    corrupted = x.copy()
    for number, kind in enumerate(kinds):
        chosen = np.flatnonzero(affected & (drawn == number))
        if len(chosen):
            corrupted[chosen] = _corrupt_by(kind, x[chosen], image, settings, rng)
    return Noisy(corrupted, y, y, ~affected)


def _corrupt_by(
    kind: str,
    x: NDArray[np.float32],
    image: bool,
    settings: NoiseSettings,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    corruption = CORRUPTIONS[kind]
    if image:
        if x.min() < 0 or x.max() > 1:
            raise TaskError(
                f"noise = 'attribute' needs images in [0, 1], these go from {x.min():g} to "
                f"{x.max():g}: give uint8 images, or floats in [0, 1]"
            )
        return corruption(x, rng)
    low, high = settings.input_range()
    width = np.where(high > low, high - low, 1)
    scaled = ((x - low) / width).astype(np.float32)
    spoilt = corruption(scaled, rng) * width + low
    # A feature that never varies has no scale to be noisy on.
    return np.where(high > low, spoilt, x).astype(np.float32)
