"""Classes: how they are spread over clients, what stores hold of them, and who is to store what."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import ClassesSpread, StoragePlanned, StreamsStored
from .axes import BLUE, MOST_NAMED, pixel_rows, rows_height, shades
from .formatting import plural, shorten
from .history import History
from .hover import over_cells
from .svg import Axes, Picture, Plot, draw


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


def plan_chart(history: History) -> Plot | None:
    """Draw the last plan: how many samples of each class each client is to store."""
    plan = history.last(StoragePlanned)
    if plan is None:
        return None
    names = [history.name_of(key) for key in plan.quota]
    return clients_by_classes("plan", list(plan.quota.values()), names, "client")


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


SPREAD = (
    Picture(
        "How the classes are spread over the clients",
        classes_chart,
        "A row is a client, a column a class; the stronger, the more samples. Rows that look alike "
        "mean that any client can stand for all. Rows with few dark cells mean that who trains "
        "decides what is learned.",
    ),
)
STORED = (
    Picture(
        "What the stores hold",
        stores_chart,
        "A row is a class, a column a round; the stronger, the more samples of it all clients "
        "together store. Look for rows that stay pale, classes that nobody keeps, and for rows "
        "that change at the same time: a new plan.",
    ),
    Picture(
        "Who is to store what",
        plan_chart,
        "The last plan: a row is a client, a column a class; the stronger, the more samples of it "
        "the client is to keep. Every column needs some colour, or the class is lost; a row with "
        "many pale cells spreads a small store over many classes.",
    ),
)
