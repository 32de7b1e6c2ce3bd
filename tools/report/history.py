"""What happened in a run, gathered from its events."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lenient import natural_order, number
from .takers import TAKERS, Problem, Row

CSV_COLUMNS = (
    "round",
    "seconds",
    "select-seconds",
    "chosen",
    "received",
    "failed",
    "late",
    "quarantined",
    "bytes-down",
    "bytes-up",
    "bytes-up-dense",
    "bytes-select",
    "train-loss",
    "accuracy",
    "loss",
    "clients-accuracy-mean",
    "clients-accuracy-worst-10",
    "clients-accuracy-best-10",
    "clients-accuracy-variance",
    "epsilon",
)


@dataclass
class History:
    """The events of a run, by round and by client.

    Attributes
    ----------
    rows : dict of int to dict
        For each round what is known of the columns of `rounds.csv` (and `clients-loss-mean`).
        `chosen`, `received`, `failed` and `late` are about training; the bytes down and up are
        all but those of queries, which are `bytes-select`. `bytes-up-dense` is what the bytes up
        would have been with whole models instead of sparse updates; unknown where none was sparse.
    chosen : dict of int to list of str
        Clients chosen for training, by round.
    clients : list of str
        Every client ever chosen, for training or evaluation, in natural order.
    population : int
        Number of clients, those never chosen included.
    problems : list of Problem
        What failed, came late or was quarantined, in training or not.
    notes : dict of str to dict
        What methods wrote down, by the kind of event, then by round and cohort (empty without
        cohorts). A round that was tried again counts as it was last.
    latest : dict of str to mapping
        The last event of each kind.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    chosen: dict[int, list[str]] = field(default_factory=dict)
    clients: list[str] = field(default_factory=list)
    population: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, dict[tuple[int, str], Mapping[str, Any]]] = field(default_factory=dict)
    strategy: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    finish: dict[str, Any] | None = None
    last_time: float = 0.0
    latest: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    delta: float | None = None  # at which the column `epsilon` holds, where a run has one

    @classmethod
    def from_events(cls, events: Iterable[Mapping[str, Any]]) -> "History":
        """Gather events; unknown ones are passed over, missing values stay unknown.

        Examples
        --------
        >>> history = History.from_events([
        ...     {"event": "selected", "round": 1, "phase": "train", "chosen": ["b", "a"]},
        ...     {"event": "evaluated", "round": 1, "where": "server", "accuracy": 0.5},
        ... ])
        >>> history.rows
        {1: {'chosen': 2, 'accuracy': 0.5}}
        >>> history.clients
        ['a', 'b']
        """
        history = cls()
        for event in events:
            history.last_time = max(history.last_time, number(event.get("time")) or 0.0)
            history.latest[str(event.get("event"))] = event
            take = TAKERS.get(str(event.get("event")))
            if take is not None:
                take(history, event)
        for row in history.rows.values():
            if "bytes-up-dense" in row:  # so far what the sparse updates have spared
                row["bytes-up-dense"] += row.get("bytes-up", 0)
        history.clients = sorted(dict.fromkeys(history.clients), key=natural_order)
        history.population = max(history.population, len(history.clients))
        return history

    def series(self, column: str) -> tuple[list[int], list[float]]:
        """Return the rounds in which a column is known, and its values."""
        rounds = [number for number in sorted(self.rows) if column in self.rows[number]]
        return rounds, [self.rows[number][column] for number in rounds]

    def noted(self, kind: str) -> dict[int, list[Mapping[str, Any]]]:
        """Return what a method wrote down, by round in their order; one note a cohort.

        Examples
        --------
        >>> events = [{"event": "streams", "round": r, "stored": [r, 0]} for r in (2, 1)]
        >>> list(History.from_events(events).noted("streams"))
        [1, 2]
        """
        found: dict[int, list[Mapping[str, Any]]] = {}
        for (current, _), event in sorted(self.notes.get(kind, {}).items(), key=lambda e: e[0]):
            found.setdefault(current, []).append(event)
        return found

    def total(self, column: str) -> float:
        """Return the sum of a column over all rounds."""
        return sum(self.series(column)[1])

    @property
    def accuracy_column(self) -> str:
        """The server's accuracy, or the clients' mean where the server has none."""
        return "accuracy" if self.series("accuracy")[0] else "clients-accuracy-mean"

    @property
    def rounds_done(self) -> int:
        """Number of the last round that was finished."""
        told = number(self.finish.get("rounds")) if self.finish else None
        finished = (r for r, row in self.rows.items() if "seconds" in row)
        return max([int(told or 0), *finished])

    @property
    def seconds(self) -> float:
        """Length of the run; the rounds count too, since a resumed run's clock starts anew."""
        told = number(self.finish.get("seconds")) if self.finish else None
        return max(told or 0.0, self.last_time, self.total("seconds"))

    def times_chosen(self) -> Counter[str]:
        """Count the rounds in which each known client was chosen for training."""
        counts = Counter(dict.fromkeys(self.clients, 0))
        for clients in self.chosen.values():
            counts.update(clients)
        return counts

    def ages(self) -> NDArray[np.int64]:
        """Return how long clients had waited when a round chose: a row a client, a column a round.

        The columns are all rounds from the first choice to the last. An age is the number of
        rounds since the client was last chosen, or since the first one.

        Examples
        --------
        >>> choices = enumerate(["a", "b", "b"])
        >>> events = [{"event": "selected", "round": r, "chosen": [key]} for r, key in choices]
        >>> History.from_events(events).ages().tolist()
        [[0, 0, 1], [0, 1, 0]]
        """
        rounds = range(min(self.chosen, default=0), max(self.chosen, default=-1) + 1)
        row_of = {key: row for row, key in enumerate(self.clients)}
        ages = np.zeros((len(row_of), len(rounds) + 1), dtype=np.int64)
        for column, current in enumerate(rounds):
            ages[:, column + 1] = ages[:, column] + 1
            ages[[row_of[key] for key in self.chosen.get(current, [])], column + 1] = 0
        return ages[:, :-1]

    def participation(self) -> list[int]:
        """Return the times chosen of all clients, most first, nameless never-chosen included."""
        counts = sorted(self.times_chosen().values(), reverse=True)
        return counts + [0] * (self.population - len(counts))


def jain_index(values: list[int]) -> float | None:
    r"""Return how even values are, :math:`(\sum x)^2 / (n \sum x^2)`: 1 when all are equal.

    Examples
    --------
    >>> jain_index([3, 3, 3]), jain_index([4, 0, 0, 0]), jain_index([])
    (1.0, 0.25, None)
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def spread(values: list[int]) -> tuple[int, float, int]:
    """Return least, median and most of some values."""
    return min(values), median(values), max(values)
