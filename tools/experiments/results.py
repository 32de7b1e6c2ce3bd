"""What a sweep file says: numbers per cell, and comparisons between cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from .measures import Array, Measure, series
from .records import Cell, SweepError, SweepRecord, read_records
from .statistics import Difference, Estimate, difference, estimate


@dataclass(frozen=True)
class Results:
    """The runs of a sweep."""

    runs: dict[str, dict[int, SweepRecord]]  # completed runs by cell name and seed
    failures: list[SweepRecord]  # runs that failed and were not repeated with success

    @classmethod
    def load(
        cls, path: Path, cells: Sequence[Cell] | None = None, seeds: Collection[int] | None = None
    ) -> Results:
        """Read a sweep file."""
        records = read_records(path)
        if cells is None:
            digests = {record.cell: record.digest for record in records}
        else:
            digests = {cell.name: cell.digest for cell in cells}
        current = [
            record
            for record in sorted(records, key=lambda record: record.seed)
            if record.digest == digests.get(record.cell) and (seeds is None or record.seed in seeds)
        ]
        runs: dict[str, dict[int, SweepRecord]] = {name: {} for name in digests}
        for record in current:
            if record.status == "completed":
                runs[record.cell][record.seed] = record
        failed = {r.key: r for r in current if r.seed not in runs[r.cell]}
        return cls(runs, list(failed.values()))

    @property
    def cells(self) -> list[str]:
        """Names of the cells."""
        return list(self.runs)

    def values(self, cell: str, measure: Measure) -> dict[int, float]:
        """Return the measure of every run of a cell that has one, by seed."""
        runs = self._runs(cell, measure.metrics)
        found = {seed: measure.of(run.rows) for seed, run in runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def estimate(self, cell: str, measure: Measure) -> Estimate:
        """Return mean and spread of a measure over a cell's seeds."""
        return estimate(list(self.values(cell, measure).values()))

    def difference(self, cell: str, baseline: str, measure: Measure) -> Difference:
        """Compare a cell with another one, over the seeds that both have."""
        return difference(self.values(cell, measure), self.values(baseline, measure))

    def curve(self, cell: str, metric: str) -> tuple[Array, list[Estimate]]:
        """Return the rounds at which all of a cell's runs measured a metric, and its estimates."""
        curves = [series(run.rows, metric) for run in self._runs(cell, (metric,)).values()]
        if not curves:
            return np.empty(0), []
        shared = reduce(np.intersect1d, [rounds for rounds, _ in curves])
        heights = np.stack([values[np.isin(rounds, shared)] for rounds, values in curves])
        return shared, [estimate(column) for column in heights.T.tolist()]

    def _runs(self, cell: str, metrics: Collection[str]) -> dict[int, SweepRecord]:
        """Return the completed runs of a cell; refuse names that occur nowhere."""
        if cell not in self.runs:
            raise SweepError(f"cell {cell!r} is not in the sweep; there are {self.cells}")
        rows = [row for runs in self.runs.values() for run in runs.values() for row in run.rows]
        known = {name for row in rows for name in row}
        for metric in metrics:
            if rows and metric not in known:
                raise SweepError(f"metric {metric!r} is in no run; there are {sorted(known)}")
        return self.runs[cell]
