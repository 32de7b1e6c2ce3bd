"""What clients keep of their streams: samples of each class in all stores together, over rounds."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import StreamsStored
from .axes import BLUE, pixel_rows, rows_height, shades
from .formatting import plural
from .history import History
from .hover import over_cells
from .picture import Picture
from .svg import Axes, Plot, draw


def class_counts(
    told: Mapping[int, Sequence[Sequence[int]]],
) -> tuple[int, NDArray[np.float64]]:
    """Return the first round and how many samples of each class there were: one column per round.

    A round that says nothing is like the one before. A round's report is a list of counts
    from each cohort.

    >>> class_counts({2: [[2, 1]], 4: [[3, 1], [1]]})[1].tolist()
    [[2.0, 2.0, 4.0], [1.0, 1.0, 1.0]]
    """
    told = {current: rows for current, rows in told.items() if any(rows)}
    if not told:
        return 0, np.zeros((0, 0))
    first, last = min(told), max(told)
    classes = max(len(row) for rows in told.values() for row in rows)
    table = np.zeros((classes, last - first + 1))
    for current in range(first, last + 1):
        column = current - first
        table[:, column] = table[:, column - 1] if column else 0
        if current in told:
            padded = [[*row, *[0] * (classes - len(row))] for row in told[current]]
            table[:, column] = np.sum(padded, axis=0)
    return first, table


def class_picture(name: str, first: int, table: NDArray[np.float64]) -> Plot | None:
    """Draw samples of each class over rounds: one row per class, the stronger the more."""
    if not table.any():
        return None
    classes = [str(label) for label in range(len(table))]

    def paint(axes: Axes) -> None:
        pixel_rows(axes, shades(table, BLUE), first, classes, "class")

    rows = [f"class {label}" for label in classes]
    columns = [f"round {first + column}" for column in range(table.shape[1])]
    return draw(name, rows_height(len(table)), paint, over_cells(rows, columns, table))


def stores_chart(history: History) -> Plot | None:
    """Draw what the stores of all clients hold of each class."""
    return class_picture("stores", *_stored(history))


def _stored(history: History) -> tuple[int, NDArray[np.float64]]:
    notes = history.noted(StreamsStored)
    return class_counts({current: [e.stored for e in events] for current, events in notes.items()})


def stores_sentence(history: History) -> str:
    """Say what the stores hold at the end."""
    notes = history.noted(StreamsStored)
    stored = _stored(history)[1]
    if not stored.size:
        return ""
    arrived = sum(event.arrived for event in notes[max(notes)])
    missing = int((stored[:, -1] == 0).sum())
    gap = f"{plural(missing, 'class', 'classes')} in none of them"
    return (
        f"Of {plural(arrived, 'sample')} that arrived, the clients' stores hold "
        f"{stored[:, -1].sum():,.0f} at the end, {gap if missing else 'some of every class'}."
    )


PICTURES = (
    Picture(
        "What the stores hold",
        stores_chart,
        "A row is a class, a column a round; the stronger, the more samples of it all clients "
        "together store. Look for rows that stay pale, classes that nobody keeps, and for rows "
        "that change at the same time: a new plan.",
    ),
)
