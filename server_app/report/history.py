"""What happened in a run, gathered from its events."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

Row = dict[str, float]
_ON_CLIENTS = (
    "accuracy-mean",
    "accuracy-worst-10",
    "accuracy-best-10",
    "accuracy-variance",
    "loss-mean",
)


@dataclass(frozen=True)
class Problem:
    """A request to a client that led to nothing.

    `kind` is what was asked for ("train", "evaluate", "query.<x>"), `fate` is "failed", "late" or
    "quarantined".
    """

    round: int
    client: str
    kind: str
    fate: str
    reason: str


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
    """

    rows: dict[int, Row] = field(default_factory=dict)
    chosen: dict[int, list[str]] = field(default_factory=dict)
    clients: list[str] = field(default_factory=list)
    population: int = 0
    problems: list[Problem] = field(default_factory=list)
    strategy: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    finish: dict[str, Any] | None = None
    last_time: float = 0.0
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
            take = _TAKERS.get(str(event.get("event")))
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


def number(value: Any) -> float | None:
    """Return a finite number as it is, and None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def natural_order(key: str) -> list[tuple[int, str]]:
    """Sort keys the way people count.

    Examples
    --------
    >>> sorted(["client-10", "client-9", "a"], key=natural_order)
    ['a', 'client-9', 'client-10']
    """
    parts = re.split(r"([0-9]+)", key)
    # Digits compare by length first, then as text: int() refuses very long ones.
    digits = [part.lstrip("0") if part[:1].isdecimal() else None for part in parts]
    pairs = zip(parts, digits, strict=True)
    return [(-1, part) if digit is None else (len(digit), digit) for part, digit in pairs]


def _round_of(event: Mapping[str, Any]) -> int | None:
    value = number(event.get("round"))
    return None if value is None else int(value)


def _keys(value: Any) -> list[str]:
    return [str(key) for key in value] if isinstance(value, list | tuple) else []


def _add(row: Row, column: str, value: Any) -> None:
    row[column] = row.get(column, 0) + (number(value) or 0)


def _put(row: Row, column: str, value: Any) -> None:
    known = number(value)
    if known is not None:
        row[column] = known


def _run_started(history: History, event: Mapping[str, Any]) -> None:
    history.strategy = str(event.get("strategy") or "")
    config = event.get("config")
    history.config = dict(config) if isinstance(config, Mapping) else {}
    history.population = max(history.population, int(number(event.get("clients")) or 0))


def _selected(history: History, event: Mapping[str, Any]) -> None:
    chosen, current = _keys(event.get("chosen")), _round_of(event)
    history.clients.extend(chosen)
    history.population = max(history.population, int(number(event.get("available")) or 0))
    if current is None:
        return
    row = history.rows.setdefault(current, {})
    if number(event.get("seconds")) is not None:
        _add(row, "select-seconds", event["seconds"])
    if event.get("phase", "train") == "train":
        before = history.chosen.get(current, [])
        history.chosen[current] = list(dict.fromkeys([*before, *chosen]))
        row["chosen"] = len(history.chosen[current])


def _exchange(history: History, event: Mapping[str, Any]) -> None:
    current, kind = _round_of(event), str(event.get("kind", "train"))
    failed = event.get("failed")
    failed = failed if isinstance(failed, Mapping) else {}
    late = _keys(event.get("late"))
    if current is None:
        return
    for key, reason in failed.items():
        history.problems.append(Problem(current, str(key), kind, "failed", str(reason)))
    for key in late:
        history.problems.append(Problem(current, key, kind, "late", "no reply before the deadline"))
    row = history.rows.setdefault(current, {})
    _count_bytes(row, kind, event)
    if kind == "train":
        _add(row, "received", event.get("received"))
        _add(row, "failed", len(failed))
        _add(row, "late", len(late))
        _add(row, "quarantined", 0)


def _count_bytes(row: Row, kind: str, event: Mapping[str, Any]) -> None:
    down, up = number(event.get("bytes-down")) or 0, number(event.get("bytes-up")) or 0
    query = kind.startswith("query")
    _add(row, "bytes-down", 0 if query else down)
    _add(row, "bytes-up", 0 if query else up)
    _add(row, "bytes-select", down + up if query else 0)


def _uplink(history: History, event: Mapping[str, Any]) -> None:
    current, dense = _round_of(event), number(event.get("bytes-dense"))
    if current is not None and dense:
        spared = dense - (number(event.get("bytes-sparse")) or 0)
        _add(history.rows.setdefault(current, {}), "bytes-up-dense", spared)


def _quarantined(history: History, event: Mapping[str, Any]) -> None:
    current = _round_of(event)
    if current is None:
        return
    client, reason = str(event.get("client", "?")), str(event.get("reason", ""))
    history.problems.append(Problem(current, client, "train", "quarantined", reason))
    _add(history.rows.setdefault(current, {}), "quarantined", 1)


def _privacy(history: History, event: Mapping[str, Any]) -> None:
    """Note what the client that was asked most often has given away so far."""
    current, history.delta = _round_of(event), number(event.get("delta"))
    if current is not None:
        _put(history.rows.setdefault(current, {}), "epsilon", event.get("epsilon-most"))


def _aggregated(history: History, event: Mapping[str, Any]) -> None:
    current, metrics = _round_of(event), event.get("metrics")
    if current is not None and isinstance(metrics, Mapping):
        _put(history.rows.setdefault(current, {}), "train-loss", metrics.get("train-loss"))


def _evaluated(history: History, event: Mapping[str, Any]) -> None:
    current, on_clients = _round_of(event), event.get("where") == "clients"
    if current is None:
        return
    row = history.rows.setdefault(current, {})
    for name in _ON_CLIENTS if on_clients else ("accuracy", "loss"):
        _put(row, f"clients-{name}" if on_clients else name, event.get(name))


def _round_finished(history: History, event: Mapping[str, Any]) -> None:
    current = _round_of(event)
    if current is not None:
        _put(history.rows.setdefault(current, {}), "seconds", event.get("seconds"))


def _run_finished(history: History, event: Mapping[str, Any]) -> None:
    history.finish = dict(event)


_TAKERS: dict[str, Callable[[History, Mapping[str, Any]], None]] = {
    "run-started": _run_started,
    "selected": _selected,
    "exchange": _exchange,
    "uplink": _uplink,
    "quarantined": _quarantined,
    "privacy": _privacy,
    "aggregated": _aggregated,
    "evaluated": _evaluated,
    "round-finished": _round_finished,
    "run-finished": _run_finished,
}
