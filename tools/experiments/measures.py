"""Numbers of one run, and pairs of runs at equal rounds, bytes or work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.tasks.metrics import Metric
from .records import Row, SweepRecord
from .statistics import Difference, difference

Array = npt.NDArray[np.float64]
Rows = Sequence[Row]
Runs = Mapping[int, SweepRecord]

LAST = 0.2  # share of the evaluations, the last ones, that a score is the mean of
# Whose data decide. A method with several models is good where each client's own one is.
GOAL_NAMES = {"server": "on the server's test data", "clients": "on the clients' own data"}
EVENNESS, SELECTING = "evenness", "seconds-selecting"
# What runs are made equal in, by the column that counts it
AXES = {"rounds": "round", "bytes": "bytes", "work": "client-seconds"}


@dataclass(frozen=True)
class Measure:
    """A number read off one run."""

    metrics: tuple[str, ...]  # the columns of ``rounds.csv`` that it reads
    # from a run's rows to the number; None where the run has no such number
    of: Callable[[Rows], float | None]


def series(rows: Rows, metric: str) -> tuple[Array, Array]:
    """Return the rounds at which a metric was measured, and its values."""
    measured = [row for row in rows if isinstance(row.get(metric), int | float)]
    rounds = np.array([row["round"] for row in measured], dtype=np.float64)
    return rounds, np.array([row[metric] for row in measured], dtype=np.float64)


def goal_column(metric: Metric, goal: str) -> str:
    """Return the column that a metric has on the server's or the clients' data."""
    return metric.name if goal == "server" else f"clients-{metric.name}-mean"


def worst_column(metric: Metric) -> str:
    """Return the column of the worst tenth of clients."""
    return f"clients-{metric.name}-worst-10"


def level(rows: Rows, metric: str) -> float:
    """Return the mean of the last fifth of a metric's values: one round alone may be luck."""
    values = series(rows, metric)[1]
    return float(values[-max(1, round(LAST * len(values))) :].mean()) if len(values) else math.nan


def last(rows: Rows, column: str) -> float:
    """Return the last known value of a column."""
    values = series(rows, column)[1]
    return float(values[-1]) if len(values) else math.nan


def up_to(rows: Rows, column: str, amount: float) -> list[Row]:
    """Return the rounds before a run has spent more than an amount."""
    spent = np.array([row.get(column) or 0.0 for row in rows], dtype=float)
    return [row for row, value in zip(rows, spent, strict=True) if value <= amount]


def at_equal(first: Runs, second: Runs, column: str, metric: str) -> Difference:
    """Return `first` minus `second` by seed, both cut where the one that spent less ended."""
    values: tuple[dict[int, float], dict[int, float]] = {}, {}
    for seed in sorted(first.keys() & second.keys()):
        pair = first[seed].rows, second[seed].rows
        amount = min(last(rows, column) for rows in pair)
        levels = [level(up_to(rows, column, amount), metric) for rows in pair]
        if not any(map(math.isnan, levels)):
            values[0][seed], values[1][seed] = levels
    return difference(*values)
