"""What goes into noise and what comes out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

InputRange = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class NoiseSettings:
    """How noise acts.

    Parameters
    ----------
    rate : float
        Share of a client's samples that are affected.
    num_classes : int
        Number of classes before noise.
    kinds : tuple of str
        Kinds of attribute noise to draw from; empty stands for all that fit the inputs.
    severity : int
        Strength of attribute noise, 1 to 5.
    input_range : callable
        Gives the smallest and largest value of every feature in the training pool.
    removed : float (default: 0.5)
        Share of the classes that open-set noise takes out of the task.
    """

    rate: float
    num_classes: int
    kinds: tuple[str, ...]
    severity: int
    input_range: Callable[[], InputRange]
    removed: float = 0.5


@dataclass(frozen=True)
class Noisy:
    """Samples after noise, with the truth about them.

    Parameters
    ----------
    x, y : ndarray
        Inputs and labels that the client sees.
    true_labels : ndarray
        Labels before noise.
    clean : ndarray of bool
        True where neither input nor label was corrupted.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    true_labels: NDArray[np.int64]
    clean: NDArray[np.bool_]


def untouched(x: NDArray[np.float32], y: NDArray[np.int64]) -> Noisy:
    """Take samples as they are, all clean."""
    return Noisy(x, y, y, np.ones(len(y), dtype=bool))


def draw_affected(count: int, rate: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Exactly ``int(count * rate)`` samples at random, as a mask.

    Examples
    --------
    >>> int(draw_affected(10, 0.45, np.random.default_rng(0)).sum())
    4
    """
    affected = np.zeros(count, dtype=bool)
    affected[rng.permutation(count)[: int(count * rate)]] = True
    return affected
