"""A study: named cells times seeds, whose runs are kept under ``benchmarks/records/``."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...tools.experiments.provenance import ROOT
from ...tools.experiments.records import Cell, SweepRecord, read_records
from ...tools.experiments.results import Results
from ...tools.experiments.sweep import sweep
from .runs import RUNNER

RECORDS = ROOT / "benchmarks" / "records"
PRIMARY_SEEDS = range(20)


@dataclass(frozen=True)
class Study:
    """One question asked of many runs.

    Attributes
    ----------
    name : str
        Of its file of records.
    paper : str
        Whose method it is about.
    setting : str
        What was done, for the page: data, clients, rounds, local work.
    cells : tuple of Cell
        The configs.
    seeds : range
        Each cell runs with every one of them.
    primary : tuple of str
        The cells of the comparisons that decide a claim: they run with `PRIMARY_SEEDS`.
    runner : str
        What runs a cell, as ``module:function``.
    """

    name: str
    paper: str
    setting: str
    cells: tuple[Cell, ...]
    seeds: range = range(5)
    runner: str = RUNNER
    primary: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The file of records."""
        return RECORDS / f"{self.name}.jsonl"

    @cached_property
    def results(self) -> Results:
        """What the records say; runs that are not there yet are missing in it."""
        if not self.path.exists():
            return Results({cell.name: {} for cell in self.cells}, [])
        return Results.load(self.path, self.cells)

    def seeds_of(self, cell: Cell) -> range:
        """Return the seeds that a cell runs with."""
        return PRIMARY_SEEDS if cell.name in self.primary else self.seeds

    @property
    def wanted(self) -> int:
        """How many runs the records are to have."""
        return sum(len(self.seeds_of(cell)) for cell in self.cells)

    def missing(self, path: Path | None = None) -> int:
        """Return how many runs a file of records lacks."""
        path = path or self.path
        done = {r.key for r in read_records(path) if not r.error} if path.exists() else set()
        wanted = {(c.name, c.digest, seed) for c in self.cells for seed in self.seeds_of(c)}
        return len(wanted - done)

    def run(
        self, processes: int | None, *, anew: bool = False, like: str = ""
    ) -> list[SweepRecord]:
        """Do what is missing of the cells whose name matches a regular expression.

        Runs that failed are returned. With ``anew`` all of it, beside the records until it is
        complete.
        """
        path = Path("sweeps") / "rerun" / f"{self.name}.jsonl" if anew else self.path
        by_seeds: dict[range, list[Cell]] = {}
        for cell in self.cells:
            if re.search(like, cell.name):
                by_seeds.setdefault(self.seeds_of(cell), []).append(cell)
        failures = [
            failure
            for seeds, cells in by_seeds.items()
            for failure in sweep(
                self.name, cells, seeds, path=path, processes=processes, runner=self.runner
            ).failures
        ]
        if anew and not failures:
            new = {record.key for record in read_records(path)}
            old = read_records(self.path) if self.path.exists() else []
            with path.open("ab") as file:
                file.writelines(record.line() for record in old if record.key not in new)
            os.replace(path, self.path)
        return failures


Studies = Callable[[], list[Study]]
