"""Comparisons of made-up runs."""

from typing import Any

from fake_candidates import rows
from forager.core.tasks.metrics import ACCURACY, Metric
from forager.tools.experiments.compare.budget import Budget, plan
from forager.tools.experiments.compare.candidates import Candidate
from forager.tools.experiments.compare.comparison import Comparison
from forager.tools.experiments.measures import level
from forager.tools.experiments.records import SweepRecord


def record(name: str, seed: int, rounds: list[dict[str, Any]], error: str = "") -> SweepRecord:
    status = "failed" if error else "completed"
    return SweepRecord(name, seed, "d", status, "completed", error, 1.0, {}, rounds)


def comparison(
    runs: dict[str, list[list[dict[str, Any]]]],
    goal: str = "server",
    metric: Metric = ACCURACY,
    **reached: int,
) -> Comparison:
    """Runs by strategy, one list of rows a seed; strategies stay to the end by default."""
    seeds = max(len(found) for found in runs.values())
    stages = plan(Budget("rounds", 100), 10)
    result = Comparison(
        [Candidate(name, {}) for name in runs],
        {"task": "digits"},
        Budget("rounds", 100),
        list(range(seeds)),
        stages,
        "fedavg",
        goal,
        metric,
    )
    for name, found in runs.items():
        result.runs[name] = {seed: record(name, seed, rows) for seed, rows in enumerate(found)}
        result.reached[name] = reached.get(name, len(stages) - 1)
        levels = [level(rows, result.decides) for rows in found]
        result.scores[name] = sum(levels) / len(levels) if levels else float("nan")
    return result


def seeds(height: float, rounds: int = 100, cost: float = 100.0) -> list[list[dict[str, Any]]]:
    return [rows(height + 0.002 * seed, rounds, seed, cost) for seed in range(4)]
