"""Successive halving (Jamieson and Talwalkar, AISTATS 2016): go on with the best third, again."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....core.tasks.metrics import ACCURACY, Metric
from .budget import Budget

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
