"""How a run stands, event by event."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ....core.log.events import (
    CohortsTrained,
    Evaluated,
    Event,
    Exchanged,
    NeighboursFound,
    Quarantined,
    RoundFinished,
    RunFinished,
    RunStarted,
    Selected,
    as_events,
)
from ....core.tasks.metrics import ACCURACY, Metric

RECENT = 10  # rounds that the time left is judged by
OVERDUE = 2.0  # times as long as usual


@dataclass
class RunState:
    """What is known so far.

    Attributes
    ----------
    round : int
        The round that is being played, or the last one.
    training : list of str
        Clients that were chosen and whose round is not over.
    late : Counter of str
        Clients whose reply did not come in time, and how often.
    traffic : Counter of str
        Bytes "down", "up" and for "selecting".
    slowest : dict of str to float
        Seconds of the slowest replies of the last training, where they differ.
    metric : Metric
        The one that matters.
    scores : list of float
        Its values on the server's test set, in order.
    also : dict of Metric to float
        The newest values of the other metrics there.
    own : list of float
        Its means on the clients' own data, in order.
    worst : float, optional
        Its worst tenth of the clients there, at the last evaluation.
    own_models : bool
        Whether clients have different models: then their own data is what counts.
    """

    title: str = ""
    total: int = 0
    round: int = 0
    done: int = 0
    training: list[str] = field(default_factory=list)
    late: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    traffic: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    metric: Metric = ACCURACY
    scores: list[float] = field(default_factory=list)
    also: dict[Metric, float] = field(default_factory=dict)
    own: list[float] = field(default_factory=list)
    worst: float | None = None
    own_models: bool = False
    finish: RunFinished | None = None
    _round_seconds: list[float] = field(default_factory=list)
    _others: list[Metric] = field(default_factory=list)
    _exchange_seconds: list[float] = field(default_factory=list)

    def take(self, events: Iterable[Event | Mapping[str, Any]]) -> None:
        """Learn from events, or the lines of a log; unknown kinds are passed over."""
        for event in as_events(events):
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.title, self.finish = event.strategy, None
                self.total = int(event.number("num-server-rounds") or 0)
                self.metric, *self._others = (
                    Metric(each.name, each.higher_is_better, each.share) for each in event.metrics
                )
            case Selected(phase="train"):
                self._selected(event)
            case Exchanged():
                self._exchanged(event)
            case Quarantined():
                self.quarantined[event.client] += 1
            case Evaluated(where="clients"):
                spread = (event.spread or {}).get(self.metric.name)
                self.own += [spread.mean] if spread and spread.mean is not None else []
                self.worst = spread.worst_10 if spread else None
            case CohortsTrained():
                self.own_models |= len(event.members) > 1
            case NeighboursFound():
                self.own_models = True
            case Evaluated():
                score = event.value(self.metric.name)
                self.scores += [] if score is None else [score]
                values = {metric: event.value(metric.name) for metric in self._others}
                self.also = {metric: v for metric, v in values.items() if v is not None}
            case RoundFinished():
                self.done = self.round = event.round or self.round
                self._round_seconds.append(event.seconds or 0.0)
            case RunFinished():
                self.finish, self.training = event, []

    def _selected(self, event: Selected) -> None:
        current = event.round or 0
        # Cohorts choose one after the other.
        before = self.training if current == self.round else []
        self.training = list(dict.fromkeys([*before, *event.chosen]))
        self.round = current

    def _exchanged(self, event: Exchanged) -> None:
        if event.kind.startswith("query"):
            self.traffic["selecting"] += event.bytes_down + event.bytes_up
        else:
            self.traffic += Counter(down=event.bytes_down, up=event.bytes_up)
        self.late.update(event.late)
        self.failed.update(list(event.failed))
        if event.kind == "train":
            self.training = []
            self.slowest = event.reply_seconds.slowest if event.reply_seconds else {}
            self._exchange_seconds.append(event.seconds or 0.0)

    @property
    def headline(self) -> list[float]:
        """The main metric, in order, where it counts."""
        return self.own if self.own and (self.own_models or not self.scores) else self.scores

    def seconds_a_round(self) -> float | None:
        """Return how long rounds take lately."""
        return median(self._round_seconds[-RECENT:]) if self._round_seconds else None

    def seconds_left(self) -> float | None:
        """Estimate how long the rest takes."""
        pace = self.seconds_a_round()
        return None if pace is None or not self.total else pace * max(0, self.total - self.done)

    def overdue(self, quiet_seconds: float) -> bool:
        """Return whether those who train take much longer than usual."""
        if not self.training or not self._exchange_seconds:
            return False
        usual = median(self._exchange_seconds[-RECENT:])
        return quiet_seconds > max(1.0, OVERDUE * usual)
