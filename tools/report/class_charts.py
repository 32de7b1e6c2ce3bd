"""How the classes are spread over the clients, where that is known: in simulation."""

from typing import TYPE_CHECKING

import numpy as np

from ...core.log.events import ClassesSpread
from .axes import BLUE, MOST_NAMED, rows_height, shades
from .history import History
from .hover import over_cells
from .picture import Picture
from .svg import Plot, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def classes_chart(history: History) -> Plot | None:
    """Draw clients by classes: the stronger, the more samples."""
    told = history.last(ClassesSpread)
    if told is None or not any(map(any, told.counts)):
        return None
    width = max(map(len, told.counts))
    counts = np.array([[*row, *[0] * (width - len(row))] for row in told.counts], dtype=np.float64)
    clients, classes = len(counts), counts.shape[1]

    def paint(axes: "Axes") -> None:
        pixels = shades(counts, BLUE)
        extent = (-0.5, classes - 0.5, clients - 0.5, -0.5)
        axes.imshow(pixels, extent=extent, aspect="auto", interpolation="none")
        axes.set_xlabel("class")
        axes.locator_params(axis="x", integer=True)
        if clients <= MOST_NAMED:
            axes.set_yticks(range(clients), [str(number) for number in range(clients)])
        axes.set_ylabel("client" if clients == told.clients else f"first {clients} clients")

    rows = [f"client {number}" for number in range(clients)]
    columns = [f"class {number}" for number in range(classes)]
    return draw("classes", rows_height(clients), paint, over_cells(rows, columns, counts))


def classes_sentence(history: History) -> str:
    """Say how uneven it is, or why it is not known.

    >>> events = [{"event": "classes-spread", "clients": 2, "counts": [[5, 0], [5, 5]]}]
    >>> classes_sentence(History.from_events(events))
    'A client holds 1 to 2 of the 2 classes, median 1.5; the data are simulated.'
    """
    told = history.last(ClassesSpread)
    if told is None:
        if history.metric.name != "accuracy" or not history.chosen:
            return ""
        return "How the classes are spread is not known: clients do not report what they hold."
    held = [sum(count > 0 for count in row) for row in told.counts if any(row)]
    if not held:
        return ""
    middle, classes = float(np.median(held)), max(map(len, told.counts))
    if min(held) == max(held):
        return f"Each client holds {held[0]} of the {classes} classes; the data are simulated."
    return (
        f"A client holds {min(held)} to {max(held)} of the {classes} classes, median {middle:g}; "
        "the data are simulated."
    )


PICTURES = (
    Picture(
        "How the classes are spread over the clients",
        classes_chart,
        "A row is a client, a column a class; the stronger, the more samples. Rows that look alike "
        "mean that any client can stand for all. Rows with few dark cells mean that who trains "
        "decides what is learned.",
    ),
)
