"""Open-set label noise: samples of classes that are not part of the task (GCFL, section 6.4).

A given share of the classes, the last ones, is out of the task. Their samples stay on the clients
under a random label of the task. In the paper that share is the share of noise: rate 1 keeps them
all. A lower rate drops surplus ones, so that a task can be compared at several rates.
"""

import numpy as np
from numpy.typing import NDArray

from .noisy import NoiseSettings, Noisy


def kept_classes(num_classes: int, removed: float = 0.5) -> int:
    """Count the classes of the task: labels 0 up to this number (excluded) are kept."""
    return max(1, num_classes - int(num_classes * removed + 1e-9))


def corrupt(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    settings: NoiseSettings,
    rng: np.random.Generator,
) -> Noisy:
    """Relabel samples of left-out classes, and drop those of them that exceed the rate.

    A client with too few of them to reach the rate keeps all it has. ``true_labels`` of the
    relabelled samples are their classes before the others were taken out.
    """
    kept = kept_classes(settings.num_classes, settings.removed)
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
