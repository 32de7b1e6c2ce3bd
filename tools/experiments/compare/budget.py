"""What runs of a comparison may spend, and successive halving (Jamieson and Talwalkar, 2016)."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....core.tasks.metrics import ACCURACY, Metric
from ..measures import up_to
from ..records import Row

# What a run is told beside its run config: what it may spend
LIMIT_KIND, LIMIT_AMOUNT = "limit.kind", "limit.amount"
CONTENT = "limit.content"  # a digest of the files that it reads

# Each kind of budget, and the column of a run's rows that counts towards it
COLUMNS = {"rounds": "round", "bytes": "bytes", "seconds": "simulated-seconds"}
_UNITS: dict[str, tuple[str, float]] = {
    "rounds": ("rounds", 1.0),
    "B": ("bytes", 1.0),
    "kB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "s": ("seconds", 1.0),
    "min": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
}
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


class BudgetError(ValueError):
    """A budget that cannot be read."""


@dataclass(frozen=True)
class Budget:
    """How much of what a run may spend."""

    kind: str
    amount: float

    @property
    def column(self) -> str:
        """The column of a run's rows that counts towards it."""
        return COLUMNS[self.kind]

    def spent(self, rows: Sequence[Row]) -> float:
        """Return what the rounds so far have spent."""
        values = [row.get(self.column) for row in rows]
        return float(max((v for v in values if isinstance(v, int | float)), default=0.0))

    def within(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rounds that the budget pays for."""
        return up_to(rows, self.column, self.amount)

    def __str__(self) -> str:
        if self.kind == "rounds":
            return f"{self.amount:.0f} rounds"
        if self.kind == "seconds":
            return f"{self.amount:.3g} simulated seconds"
        unit = "MB" if self.amount >= 1e6 else "kB"
        return f"{self.amount / _UNITS[unit][1]:.3g} {unit}"


def parse_budget(text: str) -> Budget:
    """Read a budget: a number of rounds, or a number with a unit."""
    match = _TEXT.fullmatch(text)
    unit = (match[2] or "rounds") if match else ""
    unit = "rounds" if unit == "round" else unit
    if match is None or unit not in _UNITS or not float(match[1]):
        raise BudgetError(
            f"budget {text!r}: expected a number, alone (rounds) or with one of {', '.join(_UNITS)}"
        )
    kind, size = _UNITS[unit]
    amount = float(match[1]) * size
    return Budget(kind, float(max(1, round(amount))) if kind == "rounds" else amount)


KEEP = 3  # one in three goes on
FINALISTS = 2
FIRST_ROUNDS = 5  # fewer say too little to drop a strategy


@dataclass(frozen=True)
class Stage:
    """Up to where the strategies that are left are trained, and how many those are."""

    budget: Budget
    candidates: int

    def step(self, before: "Stage | None") -> float:
        """Return what one run adds to the stage before."""
        return self.budget.amount - (before.budget.amount if before else 0.0)


def plan(budget: Budget, candidates: int, *, halving: bool = True, every: int = 1) -> list[Stage]:
    """Return the stages of a comparison; one of rounds ends with an evaluation, `every` so many."""
    stages = [Stage(budget, candidates)]
    if not halving or candidates <= KEEP:
        return stages
    drops = math.ceil(math.log(candidates / FINALISTS, KEEP))
    counts = [candidates]
    for _ in range(drops):
        counts.append(keep(counts[-1]))
    amounts = [budget.amount / KEEP**drop for drop in range(drops, -1, -1)]
    if budget.kind == "rounds":
        amounts = [every * math.floor(amount / every) for amount in amounts[:-1]] + [amounts[-1]]
        amounts = [amount for amount in amounts if amount >= FIRST_ROUNDS] or [budget.amount]
        counts = counts[: len(amounts)]
    return [
        Stage(Budget(budget.kind, float(amount)), count)
        for amount, count in zip(amounts, counts, strict=True)
    ]


def keep(candidates: int) -> int:
    """Return how many of a number go on to the next stage."""
    return min(candidates, max(FINALISTS, round(candidates / KEEP)))


def total_cost(stages: Sequence[Stage]) -> float:
    """Return what all runs of one seed spend together."""
    before = [None, *stages]
    return sum(
        stage.candidates * stage.step(last) for stage, last in zip(stages, before, strict=False)
    )


def survivors(
    scores: Mapping[str, float], count: int, baseline: str, metric: Metric = ACCURACY
) -> list[str]:
    """Return who goes on, in the given order: the best with a score, and always the baseline."""
    known = {name: score for name, score in scores.items() if not math.isnan(score)}
    ranked = sorted(known, key=lambda name: -metric.gain(known[name], over=0.0))
    chosen = [name for name in ranked if name != baseline]
    chosen = chosen[: count - (baseline in known)]
    return [name for name in scores if name in chosen or (name == baseline and name in known)]
