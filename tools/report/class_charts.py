"""How the classes are spread over the clients, where that is known: in simulation."""

from collections.abc import Sequence

import numpy as np

from ...core.log.events import ClassesSpread
from .axes import BLUE, MOST_NAMED, rows_height, shades
from .formatting import shorten
from .history import History
from .hover import over_cells
from .picture import Picture
from .svg import Axes, Plot, draw


def clients_by_classes(
    name: str, counts: Sequence[Sequence[int]], clients: Sequence[str], label: str
) -> Plot | None:
    """Draw a row per client and a column per class, the stronger the more samples."""
    if not any(map(any, counts)):
        return None
    classes = max(map(len, counts))
    table = np.array([[*row, *[0] * (classes - len(row))] for row in counts], dtype=np.float64)

    def paint(axes: Axes) -> None:
        axes.imshow(shades(table, BLUE), aspect="auto", interpolation="none")
        axes.locator_params(axis="x", integer=True)
        if len(clients) <= MOST_NAMED:
            axes.set_yticks(range(len(clients)), [shorten(key, 14) for key in clients])
        axes.set(xlabel="class", ylabel=label)

    rows = [shorten(f"client {key}", 24) for key in clients]
    columns = [f"class {number}" for number in range(classes)]
    return draw(name, rows_height(len(clients)), paint, over_cells(rows, columns, table))


def classes_chart(history: History) -> Plot | None:
    """Draw how many samples of each class the first clients hold."""
    told = history.last(ClassesSpread)
    if told is None:
        return None
    count = len(told.counts)
    label = "client" if count == told.clients else f"first {count} clients"
    names = [history.name_of(str(number)) for number in range(count)]
    return clients_by_classes("classes", told.counts, names, label)


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
