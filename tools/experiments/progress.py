"""How far a sweep is: a bar with the time left on a terminal, one line per run elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .records import SweepRecord


class SweepProgress:
    """Shows the runs of a sweep as they end, on standard error; `cost` estimates the time left."""

    def __init__(
        self,
        name: str,
        total: int,
        processes: int,
        console: Console | None = None,
        cost: float | None = None,
    ) -> None:
        self.total, self.processes = total, processes
        self.finished, self.seconds = 0, 0.0
        self.cost_left, self.cost_done, self.step = float(cost or total), 0.0, 1.0
        self.console = console or Console(stderr=True, soft_wrap=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(escape(name), total=total, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, step: float, runs: int, missing: int) -> None:
        """Begin a stage in which each of `runs` costs `step`; some may have been done before."""
        self.step = step
        self.finished += runs - missing
        self.cost_left -= step * (runs - missing)

    def time_left(self) -> timedelta:
        """Estimate the time left from what the runs so far took for what they cost."""
        pace = self.seconds / self.cost_done if self.cost_done else 0.0
        parallel = max(1, min(self.processes, self.total - self.finished))
        return timedelta(seconds=round(pace * max(0.0, self.cost_left) / parallel))

    def advance(self, record: SweepRecord) -> None:
        """Count a finished run; a failed one is always named."""
        self.finished += 1
        self.seconds += record.seconds
        self.cost_done += self.step
        self.cost_left -= self.step
        left = f"about {self.time_left()} left"
        self._bar.update(self._task, completed=self.finished, left=left)
        if record.status == "failed":
            end = f"failed: {record.error.splitlines()[-1]}"
        elif self.console.is_terminal:
            return
        else:
            rounds = [number for row in record.rows if isinstance(number := row.get("round"), int)]
            end = f"{max(rounds, default=0)} rounds in {record.seconds:.1f} s"
        run = f"[{self.finished}/{self.total}] {record.cell} seed {record.seed}"
        self.console.print(f"{run}: {end}, {left}", markup=False)
