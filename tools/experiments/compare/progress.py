"""How far a comparison is, over all of its stages."""

from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console

from ..progress import SweepProgress
from ..records import SweepRecord
from .halving import Stage, total_cost


def last_round(record: SweepRecord) -> int:
    """Return how far a run came."""
    rounds = (row.get("round") for row in record.rows)
    return max((number for number in rounds if isinstance(number, int)), default=0)


class ComparisonProgress(SweepProgress):
    """Shows the runs of all stages as they end; the time left counts the stages to come."""

    def __init__(
        self, stages: Sequence[Stage], seeds: int, processes: int, console: Console | None = None
    ) -> None:
        total = seeds * sum(stage.candidates for stage in stages)
        super().__init__("comparing", total, processes, console)
        self.cost_left = seeds * total_cost(stages)
        self.cost_done = self.step = 0.0

    def begin(self, step: float, runs: int, missing: int) -> None:
        """Begin a stage in which each of `runs` spends `step`; some may have been done before."""
        self.step = step
        self.finished += runs - missing
        self.cost_left -= step * (runs - missing)

    def advance(self, record: SweepRecord) -> None:
        """Count a finished run."""
        self.cost_done += self.step
        self.cost_left -= self.step
        super().advance(record)

    def ended(self, record: SweepRecord) -> str:
        """Say that a run has spent what it may: that is no early stop."""
        return f"{last_round(record)} rounds in {record.seconds:.1f} s"

    def time_left(self) -> timedelta:
        """Estimate the time left from what the runs so far took for what they did."""
        pace = self.seconds / self.cost_done if self.cost_done else 0.0
        parallel = max(1, min(self.processes, self.total - self.finished))
        return timedelta(seconds=round(pace * max(0.0, self.cost_left) / parallel))
