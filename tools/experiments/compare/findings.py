"""What a comparison found, strategy by strategy: means with intervals, and paired differences."""

import math
from dataclasses import dataclass
from typing import Any

from ..records import Record
from ..statistics import Difference, Estimate, estimate
from .comparison import Comparison
from .measures import (
    ACCURACY,
    AXES,
    EVENNESS,
    GOALS,
    OWN,
    SELECTING,
    WORST,
    at_equal,
    last,
    level,
    up_to,
)

# The accuracy that does not decide
OTHER = {"server": OWN, "clients": ACCURACY}
# Answers that need no pairing: title and column of a run's last row
COSTS = {
    "bytes": "bytes",
    "work": "client-seconds",
    "simulated seconds": "simulated-seconds",
    "bytes for selecting": "bytes-selecting",
    "seconds for selecting": SELECTING,
}


@dataclass(frozen=True)
class Finding:
    """What is known of one strategy.

    Attributes
    ----------
    rounds : float
        Rounds that it was trained for, on average over seeds.
    to_the_end : bool
        Whether it took part in the last stage.
    accuracy, other, worst : Estimate
        Over seeds, at its own end: the accuracy that decides (see `GOALS`), the other one, and that
        of the worst tenth of clients on their own data.
    evenness : Estimate
        Jain's index of the times that clients were chosen, after the rounds that all strategies
        have in common: it grows with the rounds.
    costs : dict of str to Estimate
        The `COSTS`, at its own end.
    against : dict of str to Difference
        Accuracy minus that of the best strategy at equal "rounds", "bytes" and "work"; "other",
        "worst" and "evenness" are differences at equal rounds. Empty for the best itself.
    """

    name: str
    settings: dict[str, Any]
    seeds: int
    failed: int
    rounds: float
    to_the_end: bool
    accuracy: Estimate
    other: Estimate
    worst: Estimate
    evenness: Estimate
    costs: dict[str, Estimate]
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
    known = {name: score for name, score in scores.items() if not math.isnan(score)}
    return max(known, key=lambda name: known[name], default="")


def findings(comparison: Comparison) -> list[Finding]:
    """Return what was found, the best first, then by how far they came and their accuracy."""
    best, shared = best_of(comparison), shared_rounds(comparison)
    found = [_finding(comparison, name, best, shared) for name in comparison.runs]
    return sorted(found, key=lambda f: (f.name != best, not f.to_the_end, -_sortable(f)))


def shared_rounds(comparison: Comparison) -> float:
    """Return the rounds that every run of every strategy has played."""
    runs = [run for runs in comparison.runs.values() for run in runs.values()]
    return min((last(run.rows, "round") for run in runs), default=0.0)


def _sortable(finding: Finding) -> float:
    unknown = math.isnan(finding.accuracy.mean)
    return -1.0 if unknown else finding.rounds + finding.accuracy.mean


def _finding(comparison: Comparison, name: str, best: str, shared: float) -> Finding:
    runs = comparison.runs[name]
    settings = next(c.settings for c in comparison.candidates if c.name == name)
    rows = [run.rows for run in runs.values()]
    decides, other = GOALS[comparison.goal], OTHER[comparison.goal]
    return Finding(
        name=name,
        settings=dict(settings),
        seeds=len(runs),
        failed=len({f.seed for f in comparison.failures if f.cell == name}),
        rounds=_estimate(last(r, "round") for r in rows).mean,
        to_the_end=name in comparison.finalists,
        accuracy=_estimate(level(r, decides) for r in rows),
        other=_estimate(level(r, other) for r in rows),
        worst=_estimate(level(r, WORST) for r in rows),
        evenness=_estimate(last(up_to(r, "round", shared), EVENNESS) for r in rows),
        costs={title: _estimate(last(r, column) for r in rows) for title, column in COSTS.items()},
        against=(
            _against(runs, comparison.runs[best], decides, other) if best and name != best else {}
        ),
    )


def _estimate(values: Any) -> Estimate:
    return estimate([value for value in values if not math.isnan(value)])


def _against(
    runs: dict[int, Record], best: dict[int, Record], decides: str, other: str
) -> dict[str, Difference]:
    differences = {axis: at_equal(runs, best, axis, decides) for axis in AXES}
    differences["other"] = at_equal(runs, best, "rounds", other)
    differences["worst"] = at_equal(runs, best, "rounds", WORST)
    differences["evenness"] = at_equal(runs, best, "rounds", EVENNESS)
    return differences
