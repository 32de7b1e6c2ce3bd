"""Clipping an update to a norm, as differential privacy needs it."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def clipped(before: Arrays, after: Arrays, norm: float) -> Arrays:
    """Return the arrays with their change clipped; others than floats, which get no noise, stay."""
    changes = {n: after[n] - before[n] for n in before if before[n].dtype.kind == "f"}
    squares = (float(np.vdot(c, c)) for c in changes.values())
    length = math.sqrt(sum(squares))
    scale = min(1.0, norm / length) if length > 0 else 1.0
    shortened = {n: (before[n] + scale * c).astype(before[n].dtype) for n, c in changes.items()}
    return {name: shortened.get(name, before[name]) for name in after}


def with_noise(arrays: Arrays, scale: float, rng: np.random.Generator) -> Arrays:
    """Return arrays with Gaussian noise on every float entry."""
    return {
        name: array + rng.normal(scale=scale, size=array.shape).astype(array.dtype)
        if array.dtype.kind == "f"
        else array
        for name, array in arrays.items()
    }
