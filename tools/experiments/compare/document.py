"""A comparison as one JSON document, from which table and page are made."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ....core.tasks.metrics import Metric
from ....server_app.run_folder import to_plain
from ..measures import series
from ..results import Results
from .budget import CONTENT
from .candidates import what_it_sets
from .comparison import Comparison
from .findings import StrategyFinding, findings, shared_rounds
from .measures import AXES, GOAL_NAMES
from .verdict import EVEN, Ruler, judge, recommended, verdict

MOST_POINTS = 200  # of a curve: more are not seen


def document(comparison: Comparison, command: str = "") -> dict[str, Any]:
    """Return everything that is known, as what JSON can hold; unknown numbers are None."""
    found = findings(comparison)
    best = next((finding for finding in found if finding.to_the_end), None)
    others = [finding for finding in found if finding is not best and finding.seeds]
    ruler = Ruler.of(comparison.metric, best)
    found_plain: dict[str, Any] = to_plain(
        {
            "task": str(comparison.common.get("task") or "digits"),
            "settings": {k: v for k, v in comparison.common.items() if k != CONTENT},
            "command": command,
            "budget": str(comparison.budget),
            "seeds": comparison.seeds,
            "baseline": comparison.baseline,
            "goal": GOAL_NAMES[comparison.goal],
            "metric": {
                "name": comparison.metric.name,
                "higher-is-better": comparison.metric.higher_is_better,
                "share": comparison.metric.share,
            },
            "margin": ruler.margin,
            "best": best.name if best else "",
            "recommended": recommended(best, others, comparison.baseline, ruler) if best else "",
            "verdict": verdict(comparison, found),
            "shared-rounds": shared_rounds(comparison),
            "stages": [_stage(comparison, number) for number in range(len(comparison.stages))],
            "strategies": [_strategy(finding, ruler) for finding in found],
            "curves": {finding.name: _curve(comparison, finding.name) for finding in found},
        }
    )
    return found_plain


def _stage(comparison: Comparison, number: int) -> dict[str, Any]:
    took_part = [name for name, stage in comparison.reached.items() if stage >= number]
    stage = comparison.stages[number]
    return {
        "budget": str(stage.budget),
        "amount": stage.budget.amount,
        "strategies": took_part,
    }


def metric_of(found: Mapping[str, Any]) -> Metric:
    """Return what the strategies of a document are judged by."""
    told = found["metric"]
    return Metric(told["name"], told["higher-is-better"], told["share"])


def _strategy(finding: StrategyFinding, ruler: Ruler) -> dict[str, Any]:
    plain = asdict(finding)
    for axis, gap in finding.against.items():
        plain["against"][axis]["verdict"] = judge(gap, EVEN if axis == "evenness" else ruler)
    size, seconds = finding.selecting_a_round
    plain["sets"] = what_it_sets(finding.settings)
    return plain | {"selecting": {"bytes-a-round": size, "seconds-a-round": seconds}}


def _curve(comparison: Comparison, name: str) -> dict[str, list[float]]:
    """Return the metric by round with its interval, and the mean cost up to each of the rounds."""
    results = Results(comparison.runs, [])
    if not results.runs[name]:
        return {}
    rounds, points = results.curve(name, comparison.decides)
    shown = np.unique(np.linspace(0, len(rounds) - 1, min(len(rounds), MOST_POINTS)).astype(int))
    curve: dict[str, list[float]] = {
        "mean": [points[i].mean for i in shown],
        "low": [points[i].low for i in shown],
        "high": [points[i].high for i in shown],
    }
    for axis, column in AXES.items():
        runs = [series(run.rows, column) for run in results.runs[name].values()]
        at = [dict(zip(*run, strict=True)) for run in runs]
        curve[axis] = [float(np.mean([run[rounds[i]] for run in at])) for i in shown]
    return curve
