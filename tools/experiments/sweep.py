"""Run configs times seeds, in parallel and resumable, into one file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from pathlib import Path
from urllib.parse import quote

from .cluster import ClusterPool, cluster_address
from .progress import SweepProgress
from .provenance import commit, versions
from .records import Cell, Key, Scalar, SweepError, SweepFile, SweepRecord
from .results import Results
from .workers import Reply, WorkerPool, check_runner

LOCAL_ENGINE = "forager.tools.engine.local:run_local"


@dataclass(frozen=True)
class Run:
    """One cell with one seed."""

    cell: Cell
    seed: int

    @property
    def key(self) -> Key:
        """What makes two runs the same run."""
        return self.cell.name, self.cell.digest, self.seed

    def overrides(self, folder: Path) -> dict[str, Scalar]:
        """Return the run-config values, with an output folder of its own."""
        # Quoted, so that no two runs share a folder and no name leaves it.
        name = f"{quote(self.cell.name, safe='')}-{self.cell.digest}-{self.seed}"
        return {**self.cell.config, "seed": self.seed, "output-dir": str(folder / name)}

    def record(self, reply: Reply) -> SweepRecord:
        """Return the line of the sweep file that says how it ended."""
        return SweepRecord(
            cell=self.cell.name,
            seed=self.seed,
            digest=self.cell.digest,
            status="failed" if reply.error else "completed",
            reason=reply.reason,
            error=reply.error,
            seconds=round(reply.seconds, 3),
            config=dict(self.cell.config),
            rows=reply.rows,
            commit=commit(),
            versions=versions(),
        )


def sweep(
    name: str,
    cells: Iterable[Cell],
    seeds: Iterable[int],
    *,
    path: Path | None = None,
    processes: int | None = None,
    runner: str = LOCAL_ENGINE,
    keep_runs: Path | None = None,
    cluster: str | None = None,
) -> Results:
    """Run every cell with every seed, except what the sweep file already holds.

    All cells share the seeds, so that they can be compared in pairs. The file is
    ``sweeps/<name>.jsonl`` by default, and `processes` are as many as there are cores, of this
    machine or of the Ray cluster at `cluster` (``RAY_ADDRESS`` by default; empty for this machine).
    `runner` is what runs one config, as ``module:function``. The runs' own folders are removed
    unless `keep_runs` says where to keep them. Runs that failed are in the results' `failures`.
    """
    cells, seeds = list(cells), [index(seed) for seed in seeds]
    _check(cells, seeds, processes)
    path = path or Path("sweeps") / f"{name}.jsonl"
    with open_sweep(path, runner, processes, keep_runs, cluster) as runs:
        missing = runs.missing(cells, seeds)
        if missing:
            with SweepProgress(name, len(missing), runs.processes) as progress:
                runs.run(missing, progress)
        return runs.results(cells, seeds)


def _check(cells: Sequence[Cell], seeds: Sequence[int], processes: int | None) -> None:
    if not cells:
        raise SweepError("cells: [] is empty; a sweep needs at least one cell")
    if not seeds:
        raise SweepError("seeds: [] is empty; a sweep needs at least one seed")
    if processes is not None and processes < 1:
        raise SweepError(f"processes: {processes} is not allowed; it must be 1 or more")
    for what, values in (("cell name", [cell.name for cell in cells]), ("seed", seeds)):
        for value, count in Counter[object](values).items():
            if count > 1:
                raise SweepError(f"{what}: {value!r} is given {count} times; each may occur once")


class Sweep:
    """A sweep file and the workers that fill it, for runs that are decided upon step by step."""

    def __init__(
        self, file: SweepFile, pool: WorkerPool | ClusterPool, folder: Path, keep_runs: bool
    ) -> None:
        self._file, self._pool, self._folder, self._keep = file, pool, folder, keep_runs
        self.records = file.records  # of earlier commands
        self.processes = pool.processes  # runs at the same time
        self._done = {record.key for record in file.records if record.status == "completed"}

    def missing(self, cells: Sequence[Cell], seeds: Sequence[int]) -> list[Run]:
        """Return the runs of these cells and seeds that the file does not hold."""
        # Seeds outermost: a sweep stopped half-way still has whole seeds to compare.
        runs = [Run(cell, seed) for seed in seeds for cell in cells]
        return [run for run in runs if run.key not in self._done]

    def run(self, runs: Sequence[Run], progress: SweepProgress) -> None:
        """Do these runs and record each as it ends."""
        check_runner(self._pool.runner)
        tasks = [run.overrides(self._folder) for run in runs]
        for position, reply in self._pool.run(tasks):
            record = runs[position].record(reply)
            self._file.append(record)
            if record.status == "completed":
                self._done.add(record.key)
            progress.advance(record)
            if not self._keep:
                # At once, not at the end: hundreds of runs' checkpoints fill a disk.
                shutil.rmtree(str(tasks[position]["output-dir"]), ignore_errors=True)

    def results(self, cells: Sequence[Cell], seeds: Sequence[int]) -> Results:
        """Return what the file says of these cells and seeds."""
        return Results.load(self._file.path, cells, seeds)


@contextmanager
def open_sweep(
    path: Path,
    runner: str,
    processes: int | None,
    keep_runs: Path | None = None,
    cluster: str | None = None,
) -> Iterator[Sweep]:
    """Open a sweep file with workers to fill it; the parameters are those of `sweep`."""
    with (
        SweepFile(path) as file,
        tempfile.TemporaryDirectory(prefix="sweep-", ignore_cleanup_errors=True) as scratch,
        _pool(cluster_address(cluster), runner, processes, Path(scratch)) as pool,
    ):
        folder = keep_runs.absolute() if keep_runs else Path(scratch)
        yield Sweep(file, pool, folder, keep_runs is not None)


def _pool(
    cluster: str, runner: str, processes: int | None, scratch: Path
) -> WorkerPool | ClusterPool:
    if cluster:
        return ClusterPool(cluster, runner, processes, scratch)
    return WorkerPool(runner, processes or os.cpu_count() or 1, scratch)
