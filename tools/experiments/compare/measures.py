"""Numbers of one run, and pairs of runs at equal rounds, bytes or work."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ....core.tasks.metrics import Metric
from ..measures import series
from ..records import Row, SweepRecord
from ..statistics import Difference, difference

LAST = 0.2  # share of the evaluations, the last ones, that a score is the mean of
# Whose data decide. A method with several models is good where each client's own one is.
GOAL_NAMES = {"server": "on the server's test data", "clients": "on the clients' own data"}
EVENNESS, SELECTING = "evenness", "seconds-selecting"
# What runs are made equal in, by the column that counts it
AXES = {"rounds": "round", "bytes": "bytes", "work": "client-seconds"}

Rows = Sequence[Row]
Runs = Mapping[int, SweepRecord]


def goal_column(metric: Metric, goal: str) -> str:
    """Return the column that a metric has on the server's or the clients' data.

    >>> goal_column(Metric("mae"), "clients")
    'clients-mae-mean'
    """
    return metric.name if goal == "server" else f"clients-{metric.name}-mean"


def worst_column(metric: Metric) -> str:
    """Return the column of the worst tenth of clients."""
    return f"clients-{metric.name}-worst-10"


def level(rows: Rows, metric: str) -> float:
    """Return the mean of the last fifth of a metric's values: one round alone may be luck.

    >>> curve = [{"round": r, "accuracy": a} for r, a in enumerate((0.1, 0.2, 0.3, 0.5, 0.7))]
    >>> level(curve, "accuracy")
    0.7
    >>> level([], "accuracy")
    nan
    """
    values = series(rows, metric)[1]
    if not len(values):
        return math.nan
    return float(values[-max(1, round(LAST * len(values))) :].mean())


def last(rows: Rows, column: str) -> float:
    """Return the last known value of a column."""
    values = series(rows, column)[1]
    return float(values[-1]) if len(values) else math.nan


def up_to(rows: Rows, column: str, amount: float) -> list[Row]:
    """Return the rounds before a run has spent more than an amount."""
    spent = np.array([row.get(column) or 0.0 for row in rows], dtype=float)
    return [row for row, value in zip(rows, spent, strict=True) if value <= amount]


def at_equal(first: Runs, second: Runs, column: str, metric: str) -> Difference:
    """Compare two strategies by pairs of runs with the same seed: `first` minus `second`.

    Both runs of a pair are cut where the one that spent less, as the column counts, ended.
    """
    values: tuple[dict[int, float], dict[int, float]] = {}, {}
    for seed in sorted(first.keys() & second.keys()):
        pair = first[seed].rows, second[seed].rows
        amount = min(last(rows, column) for rows in pair)
        levels = [level(up_to(rows, column, amount), metric) for rows in pair]
        if not any(map(math.isnan, levels)):
            values[0][seed], values[1][seed] = levels
    return difference(*values)
