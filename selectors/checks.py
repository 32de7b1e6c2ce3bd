"""Checks of arguments that many rules share: errors name the argument, and what is allowed."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def at_least(bound: float, **values: float) -> None:
    """Refuse numbers below a bound, and NaN.

    >>> at_least(1, parts=0)
    Traceback (most recent call last):
    ValueError: parts: expected 1 or more, got 0
    """
    for name, value in values.items():
        if not value >= bound:
            raise ValueError(f"{name}: expected {bound} or more, got {value!r}")


def shares(**values: float) -> None:
    """Refuse what is not between 0 and 1."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}: expected a share from 0 to 1, got {value!r}")


def one_of(allowed: tuple[str, ...], **values: str) -> None:
    """Refuse texts that are not among those allowed."""
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")


def check_target(gradients: NDArray[Any], target: NDArray[Any]) -> None:
    """Refuse a target that is not finite or not like one row of the gradients."""
    if gradients.ndim != 2:
        raise ValueError(f"gradients: expected one row per sample, got shape {gradients.shape}")
    if target.shape != gradients.shape[1:]:
        width = gradients.shape[1]
        raise ValueError(f"target: expected {width} values as in a row, got {target.shape}")
    if not np.isfinite(target).all():
        raise ValueError("target: expected finite values, got some that are not")


def finite_rows(values: ArrayLike, name: str = "updates") -> NDArray[np.float64]:
    """Return a matrix of finite numbers, one row per client."""
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or not np.all(np.isfinite(rows)):
        raise ValueError(f"{name}: expected a matrix of finite numbers, one row per client")
    return rows
