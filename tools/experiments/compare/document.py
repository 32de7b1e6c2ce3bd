"""What a comparison found, strategy by strategy, put into its document."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ....core.tasks.metrics import Metric
from ..measures import AXES, EVENNESS, at_equal, last, level, series, up_to, worst_column
from ..records import SweepRecord
from ..results import Results
from ..statistics import Difference, Estimate, estimate
from .budget import CONTENT
from .candidates import what_it_sets
from .comparison import Comparison
from .schema import (
    BETTER,
    COSTS,
    EQUAL,
    OPEN,
    WORSE,
    Curve,
    Document,
    Gap,
    MetricTold,
    StageTold,
    StrategyFinding,
)
from .verdict import verdict

MARGIN = 0.02  # shares that are closer than two points are as good as equal
MOST_POINTS = 200  # of a curve: more are not seen


def judge(gap: Difference, metric: Metric, margin: float = MARGIN) -> str:
    """Return what the interval of a difference allows one to say."""
    if math.isnan(gap.low):
        return OPEN
    if gap.low >= -margin and gap.high <= margin:
        return EQUAL
    if gap.low <= 0.0 <= gap.high:
        return OPEN
    return BETTER if metric.better(gap.mean, than=0.0) else WORSE


def document(comparison: Comparison, command: str = "") -> Document:
    """Return everything that is known, the best strategy first, and say it in words."""
    metric, runs = comparison.metric, comparison.runs
    scores = {name: comparison.scores[name] for name in comparison.finalists}
    best = next((n for n, score in scores.items() if score == metric.best(scores.values())), "")
    margin = MARGIN if metric.share else MARGIN * abs(scores.get(best, 0.0))
    every = [run.rows for of in runs.values() for run in of.values()]
    shared = min((last(rows, "round") for rows in every), default=0.0)
    found = [_finding(comparison, name, best, shared, margin) for name in runs]

    def rank(finding: StrategyFinding) -> tuple[bool, bool, bool, float, float]:
        score, unknown = finding.score.mean, math.isnan(finding.score.mean)
        lead, rounds = (0.0, 0.0) if unknown else (metric.gain(score, over=0.0), finding.rounds)
        return finding.name != best, not finding.to_the_end, unknown, -rounds, -lead

    found.sort(key=rank)
    against = {f.name: f.against["rounds"].verdict for f in found if f.seeds and f.against}
    beaten = against.get(comparison.baseline, WORSE) == WORSE
    told = Document(
        task=str(comparison.common.get("task") or "digits"),
        settings={k: v for k, v in comparison.common.items() if k != CONTENT},
        command=command,
        budget=str(comparison.budget),
        seeds=comparison.seeds,
        baseline=comparison.baseline,
        goal=comparison.goal,
        metric=MetricTold(
            name=metric.name, higher_is_better=metric.higher_is_better, share=metric.share
        ),
        margin=margin,
        best=best,
        recommended=(best if beaten else comparison.baseline) if best else "",
        shared_rounds=shared,
        stages=[
            StageTold(
                budget=str(stage.budget),
                amount=stage.budget.amount,
                strategies=[name for name, far in comparison.reached.items() if far >= number],
            )
            for number, stage in enumerate(comparison.stages)
        ],
        strategies=found,
        curves={f.name: _curve(comparison, f.name) for f in found if f.seeds},
    )
    told.verdict = verdict(told)
    return told


def _finding(
    comparison: Comparison, name: str, best: str, shared: float, margin: float
) -> StrategyFinding:
    runs, metric = comparison.runs[name], comparison.metric
    settings = next(c.settings for c in comparison.candidates if c.name == name)
    rows = [run.rows for run in runs.values()]
    worst = worst_column(metric)
    return StrategyFinding(
        name=name,
        settings=dict(settings),
        sets=what_it_sets(settings),
        seeds=len(runs),
        failed=len({f.seed for f in comparison.failures if f.cell == name}),
        rounds=_known(last(r, "round") for r in rows).mean,
        to_the_end=name in comparison.finalists,
        score=_known(level(r, comparison.decides) for r in rows),
        other=_known(level(r, comparison.other) for r in rows),
        worst=_known(level(r, worst) for r in rows),
        evenness=_known(last(up_to(r, "round", shared), EVENNESS) for r in rows),
        costs={title: _known(last(r, column) for r in rows) for title, column in COSTS.items()},
        against=_against(comparison, runs, best, margin) if best and name != best else {},
    )


def _known(values: Iterable[float]) -> Estimate:
    return estimate([value for value in values if not math.isnan(value)])


def _against(
    comparison: Comparison, runs: dict[int, SweepRecord], best: str, margin: float
) -> dict[str, Gap]:
    """Return the differences to the best: what is compared, at equal what, by which column."""
    metric, even = comparison.metric, Metric(EVENNESS)
    wanted: dict[str, tuple[str, str, Metric, float]] = {
        **{axis: (axis, comparison.decides, metric, margin) for axis in AXES},
        "other": ("rounds", comparison.other, metric, margin),
        "worst": ("rounds", worst_column(metric), metric, margin),
        "evenness": ("rounds", EVENNESS, even, MARGIN),
    }
    found = {}
    for name, (axis, column, judged_by, close) in wanted.items():
        gap = at_equal(runs, comparison.runs[best], AXES[axis], column)
        found[name] = Gap(**vars(gap), verdict=judge(gap, judged_by, close))
    return found


def _curve(comparison: Comparison, name: str) -> Curve:
    results = Results(comparison.runs, [])
    rounds, points = results.curve(name, comparison.decides)
    shown = np.unique(np.linspace(0, len(rounds) - 1, min(len(rounds), MOST_POINTS)).astype(int))
    costs: dict[str, Any] = {}
    for axis, column in AXES.items():
        at = [dict(zip(*series(r.rows, column), strict=True)) for r in results.runs[name].values()]
        costs[axis] = [float(np.mean([run[rounds[i]] for run in at])) for i in shown]
    bounds = {part: [getattr(points[i], part) for i in shown] for part in ("mean", "low", "high")}
    return Curve(**bounds, **costs)
