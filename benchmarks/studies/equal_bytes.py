"""Two methods compared at the same number of bytes instead of the same number of rounds."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ...tools.experiments.measures import series
from ...tools.experiments.records import Row
from ...tools.experiments.results import Results
from ...tools.experiments.statistics import Difference, difference

BYTES = ("bytes-down", "bytes-up", "bytes-select")


def spent(rows: Sequence[Row]) -> dict[float, float]:
    """Return all bytes from the start of a run to each round of the rows.

    >>> spent([{"round": 3, "bytes-up": 5, "bytes-down": 5}, {"round": 6, "bytes-up": 10}])
    {3: 10.0, 6: 20.0}
    """
    total = 0.0
    found: dict[float, float] = {}
    for row in rows:
        amounts: list[Any] = [row.get(name) or 0 for name in BYTES]
        total += sum(amounts)
        found[cast(float, row["round"])] = total
    return found


def at_bytes(rows: Sequence[Row], metric: str, budget: float) -> float:
    """Return a metric when this many bytes were spent, between evaluations on a straight line.

    >>> rows = [{"round": r, "bytes-up": 10, "loss": 3.0 - r} for r in (1, 2)]
    >>> at_bytes(rows, "loss", 15)
    1.5
    """
    rounds, values = series(rows, metric)
    bytes_at = spent(rows)
    return float(np.interp(budget, [bytes_at[r] for r in rounds], values))


def difference_at_equal_bytes(
    results: Results, cell: str, baseline: str, metric: str
) -> Difference:
    """Compare two cells seed by seed, at the end of whichever spent less."""
    first, second = results.runs[cell], results.runs[baseline]
    values: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for seed in first.keys() & second.keys():
        pair = first[seed].rows, second[seed].rows
        budget = min(max(spent(rows).values()) for rows in pair)
        for found, rows in zip(values, pair, strict=True):
            found[seed] = at_bytes(rows, metric, budget)
    return difference(*values)
