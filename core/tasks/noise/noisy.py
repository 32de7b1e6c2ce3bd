"""Wrong labels, and what goes into noise and comes out: of the label set, from outside it, random.

With open-set noise a given share of the classes, the last ones, is out of the task. Their samples
stay on the clients under a random label of the task. In the paper (GCFL, section 6.4) that share is
the share of noise: rate 1 keeps them all. A lower rate drops surplus ones, so that a task can be
compared at several rates.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import TaskError

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


def closed_set(
    x: NDArray[np.float32], y: NDArray[np.int64], settings: NoiseSettings, rng: np.random.Generator
) -> Noisy:
    """Give ``int(n * rate)`` samples a label drawn evenly from the other classes."""
    if settings.num_classes < 2:
        raise TaskError("noise = 'closed-set' needs at least 2 classes, the data has 1")
    affected = draw_affected(len(y), settings.rate, rng)
    shift = rng.integers(1, settings.num_classes, len(y))
    flipped = np.where(affected, (y + shift) % settings.num_classes, y)
    return Noisy(x, flipped, y, ~affected)


def kept_classes(num_classes: int, removed: float = 0.5) -> int:
    """Count the classes of the task: labels 0 up to this number (excluded) are kept."""
    return max(1, num_classes - int(num_classes * removed + 1e-9))


def open_set(
    x: NDArray[np.float32], y: NDArray[np.int64], settings: NoiseSettings, rng: np.random.Generator
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


def wrong_clients(share: float, clients: int) -> frozenset[int]:
    """Return that share of the clients, the same in every run; more of them with a larger share."""
    if not share:
        return frozenset()
    order = np.random.default_rng(0).permutation(clients)
    return frozenset(order[: round(share * clients)].tolist())


def random_labels(data: Noisy, num_classes: int, client: int) -> Noisy:
    """Return a client's samples with labels drawn evenly from all classes."""
    labels = np.random.default_rng([client, 17]).integers(0, num_classes, len(data.y))
    return replace(data, y=labels, clean=data.clean & (labels == data.true_labels))
