"""What goes into noise and what comes out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

InputRange = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class NoiseSettings:
    """How noise acts."""

    rate: float  # share of a client's samples that are affected
    num_classes: int  # before noise
    input_range: Callable[[], InputRange]  # smallest and largest value of every feature
    removed: float = 0.5  # share of the classes that open-set noise takes out of the task


@dataclass(frozen=True)
class Noisy:
    """Samples after noise, with the truth about them."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    true_labels: NDArray[np.int64]  # before noise
    clean: NDArray[np.bool_]  # where neither input nor label was corrupted


def untouched(x: NDArray[np.float32], y: NDArray[np.int64]) -> Noisy:
    """Take samples as they are, all clean."""
    return Noisy(x, y, y, np.ones(len(y), dtype=bool))


def draw_affected(count: int, rate: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Exactly ``int(count * rate)`` samples at random, as a mask."""
    affected = np.zeros(count, dtype=bool)
    affected[rng.permutation(count)[: int(count * rate)]] = True
    return affected
