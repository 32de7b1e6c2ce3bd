"""Open-set label noise: samples of classes that are not part of the task (GCFL, section 6.4).

The first half of the classes is the task; the other half is out of it. Samples of the latter stay
on the clients under a random label of the task. The paper ties the share of noise to the number of
classes that are left out; here the classes are always halved and the rate is set by dropping
surplus out-of-task samples, so that tasks with different rates can be compared. Rate 0 leaves the
halved task with no noise in it.
"""

import numpy as np
from numpy.typing import NDArray

from .noisy import NoiseSettings, Noisy


def kept_classes(num_classes: int) -> int:
    """Count the classes of the task: labels 0 up to this number (excluded) are kept.

    Examples
    --------
    >>> kept_classes(10), kept_classes(5)
    (5, 3)
    """
    return (num_classes + 1) // 2


def corrupt(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    settings: NoiseSettings,
    rng: np.random.Generator,
) -> Noisy:
    """Relabel samples of left-out classes, and drop those of them that exceed the rate.

    A client with too few of them to reach the rate keeps all it has. ``true_labels`` of the
    relabelled samples are their classes before the task was halved.

    Examples
    --------
    >>> settings = NoiseSettings(0.25, 4, (), 5, lambda: ...)
    >>> y = np.array([0, 1, 1, 2, 3, 3])
    >>> noisy = corrupt(np.zeros((6, 1), np.float32), y, settings, np.random.default_rng(0))
    >>> noisy.clean.tolist(), bool(noisy.y.max() < 2)
    ([True, True, True, False], True)
    """
    kept = kept_classes(settings.num_classes)
    outside = np.flatnonzero(y >= kept)
    limit = _most_outside(len(y) - len(outside), len(outside), settings.rate)
    dropped = rng.permutation(outside)[limit:]
    remaining = np.setdiff1d(np.arange(len(y)), dropped)
    true_labels = y[remaining]
    clean = true_labels < kept
    labels = np.where(clean, true_labels, rng.integers(0, kept, len(remaining)))
    return Noisy(x[remaining], labels, true_labels, clean)


def _most_outside(inside: int, outside: int, rate: float) -> int:
    """Largest number of outside samples that are at most the rate's share of all that remain."""
    if rate >= 1:
        return outside
    return min(outside, round(inside * rate / (1 - rate)))
