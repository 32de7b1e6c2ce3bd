"""How far a sweep is: a bar with the time left on a terminal, one line per run elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .records import SweepRecord


class SweepProgress:
    """Shows the runs of a sweep as they end, on standard error."""

    def __init__(
        self, name: str, total: int, processes: int, console: Console | None = None
    ) -> None:
        self.total, self.processes = total, processes
        self.finished, self.seconds = 0, 0.0
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

    def time_left(self) -> timedelta:
        """Estimate the time left, from the mean time of the runs so far."""
        remaining = self.total - self.finished
        parallel = max(1, min(self.processes, remaining))
        mean = self.seconds / max(1, self.finished)
        return timedelta(seconds=round(mean * remaining / parallel))

    def ended(self, record: SweepRecord) -> str:
        """Say how a run ended."""
        return f"{record.reason} in {record.seconds:.1f} s"

    def advance(self, record: SweepRecord) -> None:
        """Count a finished run; a failed one is always named."""
        self.finished += 1
        self.seconds += record.seconds
        left = f"about {self.time_left()} left"
        self._bar.update(self._task, completed=self.finished, left=left)
        run = f"{record.cell} seed {record.seed}"
        if record.status == "failed":
            line = f"{run}: failed: {record.error.splitlines()[-1]}"
        elif self.console.is_terminal:
            return
        else:
            line = f"{run}: {self.ended(record)}"
        self.console.print(f"[{self.finished}/{self.total}] {line}, {left}", markup=False)
