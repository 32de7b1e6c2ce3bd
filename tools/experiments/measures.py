"""One number from the rounds of one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .records import Row

Array = npt.NDArray[np.float64]
Rows = Sequence[Row]


@dataclass(frozen=True)
class Measure:
    """A number read off one run."""

    metrics: tuple[str, ...]  # the columns of ``rounds.csv`` that it reads
    # from a run's rows to the number; None where the run has no such number
    of: Callable[[Rows], float | None]


def series(rows: Rows, metric: str) -> tuple[Array, Array]:
    """Return the rounds at which a metric was measured, and its values.

    >>> series([{"round": 1, "loss": None}, {"round": 2, "loss": 0.5}], "loss")
    (array([2.]), array([0.5]))
    """
    measured = [row for row in rows if isinstance(row.get(metric), int | float)]
    rounds = np.array([row["round"] for row in measured], dtype=np.float64)
    return rounds, np.array([row[metric] for row in measured], dtype=np.float64)
