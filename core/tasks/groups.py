"""Planted groups of clients with different data: client ``i`` is in group ``i % count``."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .errors import invalid

Inputs = NDArray[np.float32]
Labels = NDArray[np.int64]


def group_of(client: int, count: int) -> int:
    """Return the group that a client belongs to."""
    return client % count


def rotation(x: Inputs, y: Labels, group: int, count: int, classes: int) -> tuple[Inputs, Labels]:
    """Return the images of a group, turned by its share of a circle."""
    if 4 % count:
        raise invalid("group_count", count, "1, 2 or 4 with rotation: quarters of a circle")
    if x.ndim < 3:
        raise invalid("group_kind", "rotation", "images; these inputs have no height and width")
    turned = np.rot90(x, group * 4 // count, axes=(-2, -1))
    return np.ascontiguousarray(turned), y


def label_permutation(
    x: Inputs, y: Labels, group: int, count: int, classes: int
) -> tuple[Inputs, Labels]:
    """Return the samples of a group with their labels shifted by its share of the classes."""
    if count > classes:
        raise invalid("group_count", count, f"at most {classes}, the number of classes")
    return x, (y + group * classes // count) % classes


def affine_shift(
    x: Inputs, y: Labels, group: int, count: int, classes: int
) -> tuple[Inputs, Labels]:
    """Return inputs ``(1 + a / 2) x + b / 2``, with a group's own normal a and b per feature.

    Reisizadeh et al., 2020.
    """
    rng = np.random.default_rng([group, *map(ord, "affine")])
    stretch, move = rng.normal(size=(2, *x.shape[1:]))
    return ((1 + 0.5 * stretch) * x + 0.5 * move).astype(x.dtype), y


GROUPS: dict[str, Callable[[Inputs, Labels, int, int, int], tuple[Inputs, Labels]]] = {
    "none": lambda x, y, *_: (x, y),
    "rotation": rotation,
    "label-permutation": label_permutation,
    "affine-shift": affine_shift,
}
