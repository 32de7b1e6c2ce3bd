"""The comparison as a table: for the terminal, and the columns that the page shares."""

import math
from collections.abc import Callable

from ....core.tasks.metrics import Metric, label, written
from ...report.formatting import data_size
from ..measures import AXES, GOAL_NAMES
from ..statistics import Estimate
from ..tables import Table
from .schema import BETTER, EQUAL, OPEN, WORSE, Document, Gap, StrategyFinding
from .verdict import FEW_SEEDS, signed

MARKS = {BETTER: "▲", EQUAL: "=", OPEN: "?", WORSE: "▼"}
Cell = tuple[str, float | str | None]  # what it says, and by what it sorts
Column = Callable[[StrategyFinding], Cell]


def columns(document: Document) -> dict[str, Column]:
    """Return the columns of a comparison's table by their titles, in the words of its metric."""
    metric, name = document.judged_by, label(document.judged_by)
    (other,) = GOAL_NAMES.keys() - {document.goal}

    def gap(axis: str) -> Column:
        return lambda s: _gap(s.against.get(axis), metric)

    return {
        "strategy": lambda s: (s.name, s.name),
        "rounds": lambda s: _number(s.rounds, "{:.0f}".format),
        name: lambda s: _spread(s.score, metric),
        **{f"at equal {axis}": gap(axis) for axis in AXES},
        f"{name} {GOAL_NAMES[other]}": lambda s: _spread(s.other, metric),
        "worst 10 %": lambda s: _spread(s.worst, metric),
        "evenness": lambda s: _number(s.evenness.mean, "{:.2f}".format),
        "bytes": lambda s: _number(s.costs["bytes"].mean, data_size),
        "work, s": lambda s: _number(s.costs["work"].mean, "{:.2f}".format),
        "selecting, per round": lambda s: _number(s.selecting_a_round()[0], data_size),
    }


def _number(value: float, write: Callable[[float], str]) -> Cell:
    return ("-", None) if math.isnan(value) else (write(value), value)


def _spread(found: Estimate, metric: Metric) -> Cell:
    text, key = _number(found.mean, lambda mean: written(metric, mean))
    if not math.isnan(found.std):
        text += f" ± {100 * found.std:.1f}" if metric.share else f" ± {found.std:.2g}"
    return text, key


def _gap(gap: Gap | None, metric: Metric) -> Cell:
    """Write a difference to the best, with its interval unless there are too few seeds for one."""
    if gap is None:
        return "best", 0.0
    text, key = _number(gap.mean, lambda mean: signed(metric, mean))
    if math.isnan(gap.low):
        return text, key
    if gap.count >= FEW_SEEDS:  # shares cannot differ by more than 1, few seeds or not
        most = 1.0 if metric.share else math.inf
        bounds = (signed(metric, max(-most, min(most, end))) for end in (gap.low, gap.high))
        text += f" [{', '.join(bounds)}]"
    return f"{text} {MARKS[gap.verdict]}", key


def text_table(document: Document) -> str:
    """Return the table in plain, aligned text, as far as it fits a terminal; the page has all."""
    name = label(document.judged_by)
    wanted = ("strategy", "rounds", name, "at equal rounds", "worst 10 %", "bytes")
    shown = {title: column for title, column in columns(document).items() if title in wanted}
    rows = [[column(s)[0] for column in shown.values()] for s in document.strategies]
    legend = ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items())
    sets = [f"  {s.name}: {s.sets}" for s in document.strategies if s.sets]
    told = "\nwhat they set beside fedavg:\n" + "\n".join(sets) if sets else ""
    spread = "\n± is one standard deviation over seeds" if len(document.seeds) > 1 else ""
    return f"{Table([list(shown), *rows]).text()}\nagainst the best: {legend}{spread}{told}\n"
