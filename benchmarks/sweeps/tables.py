"""Tables of a sweep's results, as Markdown or aligned plain text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...tools.experiments.measures import Measure
from ...tools.experiments.results import Results
from ...tools.experiments.statistics import Difference, Estimate
from ...tools.experiments.tables import Table

Spread = Literal["std", "interval"]


@dataclass(frozen=True)
class Column:
    """One measure of a table, with the title and the number format to show it in.

    Values are multiplied by `scale` first (100 for per cent, 1e-6 for megabytes).
    """

    title: str
    measure: Measure
    format: str = ".3f"
    scale: float = 1.0

    def show(self, value: float, sign: str = "") -> str:
        """Format one value."""
        return format(value * self.scale, sign + self.format)


def summary_table(
    results: Results,
    columns: Sequence[Column],
    *,
    cells: Sequence[str] | None = None,
    spread: Spread = "std",
) -> Table:
    """Mean and spread of every column's measure, one row per cell.

    The spread is the standard deviation over seeds or the 95 % t-interval of the mean. Where only
    some runs have the number (say, reach the target), it says how many.
    """

    def entry(cell: str, column: Column) -> str:
        found = results.estimate(cell, column.measure)
        text = _show_estimate(found, column, spread)
        runs = len(results.runs[cell])
        return text if found.count == runs else f"{text} ({found.count} of {runs})"

    return _table(results, columns, cells or results.cells, entry)


def difference_table(
    results: Results,
    columns: Sequence[Column],
    baseline: str,
    *,
    cells: Sequence[str] | None = None,
) -> Table:
    """Paired differences of cells to a baseline: mean, 95 % t-interval, p-value and verdict."""

    def entry(cell: str, column: Column) -> str:
        return _show_difference(results.difference(cell, baseline, column.measure), column)

    others = [cell for cell in cells or results.cells if cell != baseline]
    table = _table(results, columns, others, entry)
    table.rows[0][0] = f"cell - {baseline}"
    return table


def _table(
    results: Results,
    columns: Sequence[Column],
    cells: Sequence[str],
    entry: Callable[[str, Column], str],
) -> Table:
    rows = [["cell", "seeds", *(column.title for column in columns)]]
    for cell in cells:
        entries = [entry(cell, column) for column in columns]
        rows.append([cell, _show_seeds(results, cell), *entries])
    return Table(rows)


def _show_seeds(results: Results, cell: str) -> str:
    failed = sum(failure.cell == cell for failure in results.failures)
    return f"{len(results.runs[cell])}" + (f" ({failed} failed)" if failed else "")


def _show_estimate(found: Estimate, column: Column, spread: Spread) -> str:
    if not found.count:
        return "-"
    mean = column.show(found.mean)
    if found.count == 1:
        return mean
    if spread == "std":
        return f"{mean} ± {column.show(found.std)}"
    return f"{mean} [{column.show(found.low)}, {column.show(found.high)}]"


def _show_difference(found: Difference, column: Column) -> str:
    if not found.count:
        return "-"
    mean = column.show(found.mean, "+")
    if math.isnan(found.p_value):
        return f"{mean}, {found.verdict}"
    interval = f"[{column.show(found.low, '+')}, {column.show(found.high, '+')}]"
    return f"{mean} {interval}, p={found.p_value:.3f}, {found.verdict}"
