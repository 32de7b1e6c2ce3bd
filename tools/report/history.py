"""What happened in a run, gathered from its events."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import (
    CohortsEvaluated,
    CohortsTrained,
    CoresetsUsed,
    Evaluated,
    Event,
    Exchanged,
    NeighboursFound,
    PrivacySpent,
    Quarantined,
    Regrouped,
    RoundFinished,
    RunFinished,
    RunStarted,
    Selected,
    StreamsStored,
    as_events,
)
from ...core.tasks.metrics import Metric
from .formatting import natural_order
from .rounds import Row, add_numbers

Kind = TypeVar("Kind", bound=Event)

_UNLOGGED = 1000  # rounds that a log may lack, as one that was cut


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
    away : dict of int to set of str
        Clients that were not connected when a round ended.
    clients : list of str
        Every client ever chosen, for training or evaluation, in natural order.
    population : int
        Number of clients, those never chosen included.
    problems : list of Problem
        What failed, came late or was quarantined, in training or not.
    notes : dict of type to dict
        Events that pictures of their own are drawn from, by kind, then by round and cohort (empty
        without cohorts). A round that was tried again counts as it was last.
    latest : dict of type to Event
        The last event of each kind.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    chosen: dict[int, list[str]] = field(default_factory=dict)
    away: dict[int, set[str]] = field(default_factory=dict)
    clients: list[str] = field(default_factory=list)
    population: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: dict[type[Event], dict[tuple[int, str], Event]] = field(default_factory=dict)
    latest: dict[type[Event], Event] = field(default_factory=dict)
    last_time: float = 0.0

    @classmethod
    def from_events(cls, events: Iterable[Event | Mapping[str, Any]]) -> "History":
        """Gather events, or the lines of a log; unknown kinds are passed over.

        Examples
        --------
        >>> history = History.from_events([
        ...     {"event": "selected", "round": 1, "phase": "train", "chosen": ["b", "a"]},
        ...     Evaluated(round=1, where="server", metrics={"accuracy": 0.5}),
        ... ])
        >>> history.rows
        {1: {'chosen': 2, 'accuracy': 0.5}}
        >>> history.clients
        ['a', 'b']
        """
        history, known = cls(), list(as_events(events))
        # Every round leaves a line: a number beyond them is made up, and tables go over all rounds.
        first = min((event.round for event in known if event.round is not None), default=0)
        for event in known:
            if event.round is None or event.round - first <= len(known) + _UNLOGGED:
                history._take(event)
        for row in history.rows.values():
            if "bytes-up-dense" in row:  # so far what the sparse updates have spared
                row["bytes-up-dense"] += row.get("bytes-up", 0)
        history.clients = sorted(dict.fromkeys(history.clients), key=natural_order)
        history.population = max(history.population, len(history.clients))
        return history

    def _take(self, event: Event) -> None:
        self.last_time = max(self.last_time, event.time or 0.0)
        self.latest[type(event)] = event
        if isinstance(event, Selected):
            self.clients.extend(event.chosen)
            self.population = max(self.population, event.available)
        if event.round is not None:
            add_numbers(self.rows, event.round, event)
            self._remember(event.round, event)

    def _remember(self, current: int, event: Event) -> None:
        """Keep what is more than a number of a round."""
        match event:
            case RoundFinished() if event.away:
                self.away[current] = set(event.away)
            case Selected(phase="train"):
                self._selected(current, event)
                if event.scores is not None:
                    self._note(current, event)
            case Exchanged():
                self._exchanged(current, event)
            case Quarantined():
                self._problem(current, event.client, "train", "quarantined", event.reason)
            case Evaluated() if event.cohorts is not None and event.where != "clients":
                self._note(current, event)
            case (
                CoresetsUsed()
                | StreamsStored()
                | CohortsTrained()
                | CohortsEvaluated()
                | Regrouped()
            ):
                self._note(current, event)

    def _selected(self, current: int, event: Selected) -> None:
        before = self.chosen.get(current, [])  # cohorts choose one after the other
        self.chosen[current] = list(dict.fromkeys([*before, *event.chosen]))
        self.rows.setdefault(current, {})["chosen"] = len(self.chosen[current])

    def _exchanged(self, current: int, event: Exchanged) -> None:
        for client, reason in event.failed.items():
            self._problem(current, client, event.kind, "failed", reason)
        for client in event.late:
            self._problem(current, client, event.kind, "late", "no reply before the deadline")
        if event.kind == "train" and event.reply_seconds is not None:
            self._note(current, event)

    def _problem(self, current: int, client: str, kind: str, fate: str, reason: str) -> None:
        self.problems.append(Problem(current, client, kind, fate, reason))

    def _note(self, current: int, event: Event) -> None:
        self.notes.setdefault(type(event), {})[current, event.cohort or ""] = event

    def noted(self, kind: type[Kind]) -> dict[int, list[Kind]]:
        """Return the notes of a kind, by round in their order; one per cohort.

        Examples
        --------
        >>> events = [{"event": "streams", "round": r, "stored": [r, 0]} for r in (2, 1)]
        >>> list(History.from_events(events).noted(StreamsStored))
        [1, 2]
        """
        found: dict[int, list[Kind]] = {}
        for (current, _), event in sorted(self.notes.get(kind, {}).items(), key=lambda e: e[0]):
            if isinstance(event, kind):
                found.setdefault(current, []).append(event)
        return found

    def last(self, kind: type[Kind]) -> Kind | None:
        """Return the last event of a kind."""
        event = self.latest.get(kind)
        return event if isinstance(event, kind) else None

    @property
    def started(self) -> RunStarted:
        """What the run said of itself at its beginning, as far as it got there."""
        return self.last(RunStarted) or RunStarted()

    @property
    def finish(self) -> RunFinished | None:
        """How the run ended; None while it goes on, or if it was killed."""
        return self.last(RunFinished)

    @property
    def delta(self) -> float | None:
        """At which the column `epsilon` holds, where a run has one."""
        spent = self.last(PrivacySpent)
        return spent.delta if spent else None

    def series(self, column: str) -> tuple[list[int], list[float]]:
        """Return the rounds in which a column is known, and its values."""
        rounds = [number for number in sorted(self.rows) if column in self.rows[number]]
        return rounds, [self.rows[number][column] for number in rounds]

    def total(self, column: str) -> float:
        """Return the sum of a column over all rounds."""
        return sum(self.series(column)[1])

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What the run's models are judged by; the first is the one that matters."""
        told = self.started.metrics
        return tuple(Metric(each.name, each.higher_is_better, each.share) for each in told)

    @property
    def metric(self) -> Metric:
        """The metric that matters."""
        return self.metrics[0]

    @property
    def score_column(self) -> str:
        """The main metric: on the clients' own data if they have models of their own.

        Else on the server's, or the clients' mean where the server has none.
        """
        server, own = self.metric.name, f"clients-{self.metric.name}-mean"
        if self.own_models and self.series(own)[0]:
            return own
        return server if self.series(server)[0] else own

    @property
    def own_models(self) -> bool:
        """Whether clients had different models at some time."""
        cohorts = {
            name for events in self.noted(CohortsTrained).values() for name in events[-1].members
        }
        return len(cohorts) > 1 or self.last(NeighboursFound) is not None

    @property
    def rounds_done(self) -> int:
        """Number of the last round that was finished."""
        told = self.finish.rounds if self.finish else None
        return max([told or 0, *self.series("seconds")[0]])

    @property
    def seconds(self) -> float:
        """Length of the run; the rounds count too, since a resumed run's clock starts again."""
        told = self.finish.seconds if self.finish else None
        return max(told or 0.0, self.last_time, self.total("seconds"))

    def times_chosen(self) -> Counter[str]:
        """Count the rounds in which each known client was chosen for training."""
        counts = Counter(dict.fromkeys(self.clients, 0))
        for clients in self.chosen.values():
            counts.update(clients)
        return counts

    def ages(self) -> NDArray[np.int64]:
        """Return how long clients had waited when a round chose: clients by rounds.

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
