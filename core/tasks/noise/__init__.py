"""Noise in clients' data, by name."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..spec import TaskSpec
from .attribute import corrupted_inputs
from .noisy import NoiseSettings, Noisy, closed_set, kept_classes, open_set, untouched

Noise = Callable[
    [NDArray[np.float32], NDArray[np.int64], NoiseSettings, np.random.Generator], Noisy
]

NOISES: dict[str, Noise] = {
    "none": lambda x, y, _settings, _rng: untouched(x, y),
    "closed-set": closed_set,
    "open-set": open_set,
    "attribute": corrupted_inputs,
}


def classes_after_noise(spec: TaskSpec, num_classes: int) -> int:
    """Classes that are left to learn: open-set noise turns some of them into noise."""
    if spec.noise != "open-set":
        return num_classes
    return kept_classes(num_classes, spec.noise_removed)


__all__ = ["NOISES", "NoiseSettings", "Noisy", "classes_after_noise"]
