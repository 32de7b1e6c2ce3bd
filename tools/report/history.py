"""What happened in a run, gathered from its events."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.log.events import (
    Aggregated,
    CohortsEvaluated,
    CohortsTrained,
    Contributed,
    CoresetsUsed,
    Decided,
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
    SparseUplinkUsed,
    StreamsStored,
    as_events,
)
from ...core.tasks.metrics import Metric
from ...core.wire.keys import IDENTIFY
from .formatting import natural_order
from .rounds import Row, add_numbers

Kind = TypeVar("Kind", bound=Event)

_UNLOGGED = 1000  # rounds that a log may lack, as one that was cut
RECENT = 10  # rounds that the time left is judged by
OVERDUE = 2.0  # times as long as usual


@dataclass(frozen=True)
class Trouble:
    """A request ("train", "query.<x>", ...) whose `fate` is "failed", "late" or "quarantined"."""

    round: int
    client: str
    kind: str
    fate: str
    reason: str


@dataclass
class History:
    """The events of a run, by round and by client; a run that goes on adds to it."""

    # by round: the columns of `rounds.csv` that are known, and `clients-loss-mean`;
    # `bytes-up-dense` is what whole models would have taken where updates were sparse
    rows: dict[int, Row] = field(default_factory=dict)
    chosen: dict[int, list[str]] = field(default_factory=dict)  # for training, by round
    away: dict[int, set[str]] = field(default_factory=dict)  # not connected when a round ended
    joined: dict[str, int] = field(default_factory=dict)  # round first seen, if not the first
    clients: list[str] = field(default_factory=list)  # ever chosen, in natural order
    names: dict[str, str] = field(default_factory=dict)  # where the log says more than a number
    population: int = 0  # number of clients, those never chosen included
    problems: list[Trouble] = field(default_factory=list)  # in training or not
    # events that pictures of their own are drawn from, by kind, then by round and cohort (empty
    # without cohorts). A round that was tried again counts as it was last
    notes: dict[type[Event], dict[tuple[int, str], Event]] = field(default_factory=dict)
    latest: dict[type[Event], Event] = field(default_factory=dict)  # the last event of each kind
    training: list[str] = field(default_factory=list)  # chosen, and the round is not over
    last_time: float = 0.0
    _count: int = 0
    _first: int | None = None
    _known: set[str] = field(default_factory=set)
    _spared: dict[int, float] = field(default_factory=dict)
    _train_seconds: list[float] = field(default_factory=list)

    @classmethod
    def from_events(cls, events: Iterable[Event | Mapping[str, Any]]) -> "History":
        """Gather events, or the lines of a log; unknown kinds are passed over."""
        history = cls()
        history.take(events)
        return history

    def take(self, events: Iterable[Event | Mapping[str, Any]]) -> None:
        """Add what has happened since."""
        told = list(events)
        for entry in told:
            if isinstance(entry, Mapping):
                self.names |= _names_in(entry)
        known = list(as_events(told))
        rounds = [event.round for event in known if event.round is not None]
        if rounds:
            self._first = min(rounds) if self._first is None else min(self._first, *rounds)
        # Every round leaves a line: a number beyond them is made up, and tables go over all rounds.
        self._count += len(known)
        last = (self._first or 0) + self._count + _UNLOGGED
        for event in known:
            if event.round is None or event.round <= last:
                self._take(event)
        for current, spared in self._spared.items():
            row = self.rows[current]
            row["bytes-up-dense"] = spared + row.get("bytes-up", 0)
        if len(self._known) > len(self.clients):
            self.clients = sorted(self._known, key=natural_order)
        self.population = max(self.population, len(self.clients))

    def _take(self, event: Event) -> None:
        self.last_time = max(self.last_time, event.time or 0.0)
        if isinstance(event, RunStarted):  # a run that was resumed has not ended
            self.latest.pop(RunFinished, None)
        self.latest[type(event)] = event
        if isinstance(event, Selected):
            self._known.update(event.chosen)
            self.population = max(self.population, event.available)
        if isinstance(event, RunFinished):
            self.training = []
        if event.round is not None:
            if not isinstance(event, Quarantined):
                add_numbers(self.rows, event.round, event)
            self._remember(event.round, event)

    def _remember(self, current: int, event: Event) -> None:
        """Keep what is more than a number of a round."""
        match event:
            case RoundFinished() if event.away:
                self.away[current] = set(event.away)
            case Selected(phase="train"):
                before = self.chosen.get(current, [])  # cohorts choose one after the other
                self.chosen[current] = self.training = list(dict.fromkeys([*before, *event.chosen]))
                self.rows.setdefault(current, {})["chosen"] = len(self.chosen[current])
                if event.scores is not None:
                    self._note(current, event)
            case Exchanged():
                self._exchanged(current, event)
            case SparseUplinkUsed() if event.bytes_dense:
                spared = event.bytes_dense - event.bytes_sparse
                self._spared[current] = self._spared.get(current, 0) + spared
                self.rows.setdefault(current, {})
                if event.advice:
                    self._note(current, event)
            case Quarantined():
                self._quarantined(current, event)
            case Evaluated() if event.cohorts is not None and event.where != "clients":
                self._note(current, event)
            case (
                Contributed()
                | CoresetsUsed()
                | StreamsStored()
                | CohortsTrained()
                | CohortsEvaluated()
                | Decided()
                | Regrouped()
            ):
                self._note(current, event)

    def _quarantined(self, current: int, event: Quarantined) -> None:
        """Note what was set aside; once a round's model is made, replies are about testing it."""
        made = self.last(Aggregated)
        testing = made is not None and made.round == current
        if not testing:
            add_numbers(self.rows, current, event)
        kind = "evaluate" if testing else "train"
        self._problem(current, event.client, kind, "quarantined", event.reason)

    def _exchanged(self, current: int, event: Exchanged) -> None:
        for client, reason in event.failed.items():
            self._problem(current, client, event.kind, "failed", reason)
        for client in event.late:
            self._problem(current, client, event.kind, "late", "no reply before the deadline")
        if event.kind == IDENTIFY and event.reply_seconds and self.chosen:
            new = set(event.reply_seconds.slowest) - self._known
            self.joined |= dict.fromkeys(new, current)
        if event.kind == "train":
            self.training = []
            self._train_seconds.append(event.seconds or 0.0)
            if event.reply_seconds is not None:
                self._note(current, event)

    def _problem(self, current: int, client: str, kind: str, fate: str, reason: str) -> None:
        self.problems.append(Trouble(current, client, kind, fate, reason))

    def _note(self, current: int, event: Event) -> None:
        self.notes.setdefault(type(event), {})[current, event.cohort or ""] = event

    def noted(self, kind: type[Kind]) -> dict[int, list[Kind]]:
        """Return the notes of a kind, by round in their order; one per cohort."""
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
        """The main metric's column, on the data that decide (`judged_on_clients`)."""
        return self.column_of(self.metric)

    def column_of(self, metric: Metric, *, own: bool | None = None) -> str:
        """Return the column of a metric where it counts, or on the data that are asked for."""
        server, clients = metric.name, f"clients-{metric.name}-mean"
        if own is None:
            own = self.judged_on_clients
        return clients if own else server

    @property
    def judged_on_clients(self) -> bool:
        """Whether the clients' own data decide, by what the run is and not by what came of it."""
        asked = bool(self.series(f"clients-{self.metric.name}-mean")[0])
        return asked and (self.own_models or not self.series(self.metric.name)[0])

    @property
    def own_models(self) -> bool:
        """Whether clients may have different models."""
        planned = self.started.config.get("cohorts", "none") not in ("", "none")
        notes = self.noted(CohortsTrained).values()
        cohorts = {name for events in notes for name in events[-1].members}
        return planned or len(cohorts) > 1 or self.last(NeighboursFound) is not None

    def name_of(self, client: str) -> str:
        """Return what a client is called."""
        return self.names.get(client, client)

    def faults(self, fate: str) -> Counter[str]:
        """Count how often each client failed, was late or was set aside, whatever it was asked."""
        return Counter(self.name_of(p.client) for p in self.problems if p.fate == fate)

    @property
    def rounds_wanted(self) -> int:
        """Number of rounds that the run is to have; 0 if unknown."""
        return int(self.started.number("num-server-rounds") or 0)

    def seconds_a_round(self) -> float | None:
        """Return how long rounds take lately."""
        known = self.series("seconds")[1]
        return median(known[-RECENT:]) if known else None

    def seconds_left(self) -> float | None:
        """Estimate how long the rest takes."""
        pace, total = self.seconds_a_round(), self.rounds_wanted
        return None if pace is None or not total else pace * max(0, total - self.rounds_done)

    def overdue(self, quiet_seconds: float) -> bool:
        """Return whether those who train take much longer than usual."""
        usual = median(self._train_seconds[-RECENT:]) if self._train_seconds else None
        late = usual is not None and quiet_seconds > max(1.0, OVERDUE * usual)
        return bool(self.training) and late

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
        """Return rounds since each client was last chosen: a row per client, a column per round."""
        rounds = range(min(self.chosen, default=0), max(self.chosen, default=-1) + 1)
        row_of = {key: row for row, key in enumerate(self.clients)}
        ages = np.zeros((len(row_of), len(rounds) + 1), dtype=np.int64)
        for column, current in enumerate(rounds):
            ages[:, column + 1] = ages[:, column] + 1
            new = [key for key, since in self.joined.items() if since == current]
            ages[[row_of[key] for key in new if key in row_of], column : column + 2] = [0, 1]
            ages[[row_of[key] for key in self.chosen.get(current, [])], column + 1] = 0
        return ages[:, :-1]

    def participation(self) -> list[int]:
        """Return the times chosen of all clients, most first, nameless never-chosen included."""
        counts = sorted(self.times_chosen().values(), reverse=True)
        return counts + [0] * (self.population - len(counts))


def _names_in(line: Mapping[str, Any]) -> dict[str, str]:
    """Return what a line of the log calls a client (`client`, `name`), or several (`names`)."""
    client, name, several = (line.get(key) for key in ("client", "name", "names"))
    if isinstance(name, str) and name and isinstance(client, str | int):
        return {str(client): name}
    known = several.items() if isinstance(several, Mapping) else ()
    return {str(key): value for key, value in known if isinstance(value, str) and value}
