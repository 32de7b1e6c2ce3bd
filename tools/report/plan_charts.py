"""ODE's plan: which client is to store how many samples of which class."""

from typing import TYPE_CHECKING

import numpy as np

from ...core.log.events import StoragePlanned
from .axes import BLUE, MOST_NAMED, rows_height, shades
from .formatting import plural, shorten
from .history import History
from .hover import over_cells
from .picture import Picture
from .svg import Plot, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plan_chart(history: History) -> Plot | None:
    """Draw the last plan: a row per client, a column per class, the stronger the more samples."""
    plan = history.last(StoragePlanned)
    if plan is None or not any(map(any, plan.quota.values())):
        return None
    keys = list(plan.quota)
    classes = max(map(len, plan.quota.values()))
    table = np.array([[*row, *[0] * (classes - len(row))] for row in plan.quota.values()], float)

    def paint(axes: "Axes") -> None:
        axes.imshow(shades(table, BLUE), aspect="auto", interpolation="none")
        if len(keys) <= MOST_NAMED:
            axes.set_yticks(range(len(keys)), [shorten(key, 14) for key in keys])
        if classes <= MOST_NAMED:
            axes.set_xticks(range(classes))
        axes.set(xlabel="class", ylabel="client")

    columns = [f"class {label}" for label in range(classes)]
    rows = [shorten(key, 24) for key in keys]
    return draw("plan", rows_height(len(keys)), paint, over_cells(rows, columns, table))


def plan_sentence(history: History) -> str:
    """Say what the last plan asks of clients."""
    plan = history.last(StoragePlanned)
    if plan is None or not plan.quota:
        return ""
    labels = [sum(count > 0 for count in row) for row in plan.quota.values()]
    unplanned = sum(count == 0 for count in plan.stored)
    gap = f"; nobody is to store {plural(unplanned, 'class', 'classes')}" if unplanned else ""
    each = f"{min(labels)} to {max(labels)}" if min(labels) < max(labels) else str(labels[0])
    return (
        f"The last plan, of round {plan.round}, gives each of {plural(plan.clients, 'client')} "
        f"{each} classes to store{gap}."
    )


PICTURES = (
    Picture(
        "Who is to store what",
        plan_chart,
        "The last plan: a row is a client, a column a class; the stronger, the more samples of it "
        "the client is to keep. Every column needs some colour, or the class is lost; a row with "
        "many pale cells spreads a small store over many classes.",
    ),
)
