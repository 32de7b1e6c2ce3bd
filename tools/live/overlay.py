"""Several runs in one picture."""

from collections.abc import Mapping

from ...core.tasks.metric_text import label
from ..report.axes import HEIGHT, finish, line, percent_axis
from ..report.formatting import shorten
from ..report.history import History
from ..report.svg import SERIES, Axes, Plot, draw


def overlay(histories: Mapping[str, History]) -> Plot | None:
    """Draw the main metric of several runs over rounds; None if there is nothing to compare yet.

    Runs that are judged by another metric than the first are left out. Where all clients were
    asked, their own data decide: runs with several models are among them.
    """
    if not histories:
        return None
    metric = next(iter(histories.values())).metric
    same = {name: each for name, each in histories.items() if each.metric.name == metric.name}
    column = f"clients-{metric.name}-mean"
    if not all(history.series(column)[0] for history in same.values()):
        column = metric.name
    known = {name: each for name, each in same.items() if each.series(column)[0]}
    if len(known) < 2:
        return None

    def paint(axes: Axes) -> None:
        for position, (name, history) in enumerate(known.items()):
            line(axes, history, column, shorten(name, 30), SERIES[position % len(SERIES)])
        if metric.share:
            percent_axis(axes)
        where = "" if column == metric.name else ", clients' own data"
        finish(axes, f"{label(metric)}{where}")

    return draw("overlay", HEIGHT + 0.15 * len(known), paint)
