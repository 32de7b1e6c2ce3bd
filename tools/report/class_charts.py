"""Classes: how they are spread over clients, what stores hold of them, and who is to store what."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import ClassesSpread, StoragePlanned, StreamsStored
from .axes import cells_chart
from .formatting import plural, shorten
from .history import History
from .svg import Picture, Plot


def clients_by_classes(
    name: str, counts: Sequence[Sequence[int]], clients: Sequence[str], what: str = "client"
) -> Plot | None:
    """Draw a row per client and a column per class, the stronger the more samples."""
    rows = [shorten(f"client {key}", 24) for key in clients]
    return cells_chart(name, padded(counts), clients, what, hover_rows=rows)


def padded(counts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return lists of different lengths as a table, with zeros at the ends."""
    return np.array(list(zip_longest(*counts, fillvalue=0)), dtype=np.float64).T


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
    """Say how uneven it is, or why it is not known."""
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


def class_counts(told: Mapping[int, Sequence[Sequence[int]]]) -> tuple[int, NDArray[np.float64]]:
    """Return the first round and the samples of each class (rows) by round; gaps repeat."""
    told = {current: rows for current, rows in told.items() if any(rows)}
    if not told:
        return 0, np.zeros((0, 0))
    columns: list[list[int]] = []
    for current in range(min(told), max(told) + 1):
        known = current in told
        columns.append(padded(told[current]).sum(axis=0).tolist() if known else columns[-1])
    return min(told), padded(columns).T


def class_picture(name: str, first: int, table: NDArray[np.float64]) -> Plot | None:
    """Draw samples of each class over rounds: one row per class, the stronger the more."""
    classes = [str(label) for label in range(len(table))]
    rows = [f"class {label}" for label in classes]
    return cells_chart(name, table, classes, "class", first, hover_rows=rows)


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
    return clients_by_classes("plan", list(plan.quota.values()), names)


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
        "Rows are clients, columns are classes; a stronger colour means more samples. If all rows "
        "look alike, any client can represent the others. If rows have few dark cells, the choice "
        "of clients decides which classes are learned.",
    ),
)
STORED = (
    Picture(
        "What the stores hold",
        stores_chart,
        "Rows are classes, columns are rounds; a stronger colour means more stored samples of all "
        "clients together. Look for rows that stay pale (classes that nobody keeps), and for rows "
        "that change at the same time (a new plan).",
    ),
    Picture(
        "Who is to store what",
        plan_chart,
        "The last plan. Rows are clients, columns are classes; a stronger colour means more places "
        "for that class. Every column needs some colour, or the class is lost; a row with "
        "many pale cells spreads a small store over many classes.",
    ),
)
