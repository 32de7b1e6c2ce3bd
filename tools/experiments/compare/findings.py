"""What a comparison found, strategy by strategy: means with intervals, and paired differences."""

import math
from dataclasses import dataclass
from typing import Any

from ..records import SweepRecord
from ..statistics import Difference, Estimate, estimate
from .comparison import Comparison
from .measures import AXES, EVENNESS, SELECTING, at_equal, last, level, up_to, worst_column

# Answers that need no pairing: title and column of a run's last row
COSTS = {
    "bytes": "bytes",
    "work": "client-seconds",
    "simulated seconds": "simulated-seconds",
    "bytes for selecting": "bytes-selecting",
    "seconds for selecting": SELECTING,
}


@dataclass(frozen=True)
class StrategyFinding:
    """What is known of one strategy."""

    name: str
    settings: dict[str, Any]
    seeds: int
    failed: int
    rounds: float  # rounds that it was trained for, on average over seeds
    to_the_end: bool  # whether it took part in the last stage
    # score, other, worst: the comparison's metric over seeds, at its own end: on the data that
    # decide, on the others, and of the worst tenth of clients on their own data
    score: Estimate
    other: Estimate
    worst: Estimate
    # Jain's index of the times that clients were chosen, after the rounds that all strategies have
    # in common: it grows with the rounds
    evenness: Estimate
    costs: dict[str, Estimate]  # the `COSTS`, at its own end
    # score minus that of the best strategy at equal "rounds", "bytes" and "work"; "other", "worst"
    # and "evenness" are differences at equal rounds. Empty for the best itself
    against: dict[str, Difference]

    @property
    def selecting_a_round(self) -> tuple[float, float]:
        """Bytes and seconds that selecting takes in a round."""
        rounds = max(1.0, self.rounds)
        return (
            self.costs["bytes for selecting"].mean / rounds,
            self.costs["seconds for selecting"].mean / rounds,
        )


def best_of(comparison: Comparison) -> str:
    """Return the strategy that was best at the end; empty if all runs failed."""
    scores = {name: comparison.scores[name] for name in comparison.finalists}
    best = comparison.metric.best(scores.values())
    return next((name for name, score in scores.items() if score == best), "")


def findings(comparison: Comparison) -> list[StrategyFinding]:
    """Return what was found, the best first, then by how far they came and their score."""
    best, shared = best_of(comparison), shared_rounds(comparison)
    found = [_finding(comparison, name, best, shared) for name in comparison.runs]

    def rank(finding: StrategyFinding) -> tuple[bool, bool, bool, float, float]:
        score, unknown = finding.score.mean, math.isnan(finding.score.mean)
        lead = 0.0 if unknown else comparison.metric.gain(score, over=0.0)
        rounds = 0.0 if unknown else finding.rounds
        return finding.name != best, not finding.to_the_end, unknown, -rounds, -lead

    return sorted(found, key=rank)


def shared_rounds(comparison: Comparison) -> float:
    """Return the rounds that every run of every strategy has played."""
    runs = [run for runs in comparison.runs.values() for run in runs.values()]
    return min((last(run.rows, "round") for run in runs), default=0.0)


def _finding(comparison: Comparison, name: str, best: str, shared: float) -> StrategyFinding:
    runs = comparison.runs[name]
    settings = next(c.settings for c in comparison.candidates if c.name == name)
    rows = [run.rows for run in runs.values()]
    worst = worst_column(comparison.metric)
    return StrategyFinding(
        name=name,
        settings=dict(settings),
        seeds=len(runs),
        failed=len({f.seed for f in comparison.failures if f.cell == name}),
        rounds=_estimate(last(r, "round") for r in rows).mean,
        to_the_end=name in comparison.finalists,
        score=_estimate(level(r, comparison.decides) for r in rows),
        other=_estimate(level(r, comparison.other) for r in rows),
        worst=_estimate(level(r, worst) for r in rows),
        evenness=_estimate(last(up_to(r, "round", shared), EVENNESS) for r in rows),
        costs={title: _estimate(last(r, column) for r in rows) for title, column in COSTS.items()},
        against=_against(comparison, runs, best) if best and name != best else {},
    )


def _estimate(values: Any) -> Estimate:
    return estimate([value for value in values if not math.isnan(value)])


def _against(
    comparison: Comparison, runs: dict[int, SweepRecord], best: str
) -> dict[str, Difference]:
    first = comparison.runs[best]
    differences = {
        a: at_equal(runs, first, column, comparison.decides) for a, column in AXES.items()
    }
    columns = {
        "other": comparison.other,
        "worst": worst_column(comparison.metric),
        "evenness": EVENNESS,
    }
    return differences | {
        name: at_equal(runs, first, "rounds", column) for name, column in columns.items()
    }
