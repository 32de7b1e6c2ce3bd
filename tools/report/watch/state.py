"""How a run stands, event by event."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..lenient import by_name, number

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
    accuracies : list of float
        On the server's test set, in order.
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
    accuracies: list[float] = field(default_factory=list)
    worst: float | None = None
    finish: Mapping[str, Any] | None = None
    _round_seconds: list[float] = field(default_factory=list)
    _exchange_seconds: list[float] = field(default_factory=list)

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Learn from events; unknown kinds and missing fields are passed over."""
        for event in events:
            handler = getattr(self, f"_{str(event.get('event')).replace('-', '_')}", None)
            if handler is not None:
                handler(event)

    def seconds_a_round(self) -> float | None:
        """Return how long rounds take lately."""
        return median(self._round_seconds[-RECENT:]) if self._round_seconds else None

    def seconds_left(self) -> float | None:
        """Estimate how long the rest takes."""
        pace = self.seconds_a_round()
        return None if pace is None or not self.total else pace * max(0, self.total - self.done)

    def overdue(self, quiet_seconds: float) -> bool:
        """Tell whether those who train take much longer than usual."""
        if not self.training or not self._exchange_seconds:
            return False
        usual = median(self._exchange_seconds[-RECENT:])
        return quiet_seconds > max(1.0, OVERDUE * usual)

    def _run_started(self, event: Mapping[str, Any]) -> None:
        config = event.get("config")
        config = config if isinstance(config, Mapping) else {}
        self.title = str(event.get("strategy") or "")
        self.total = int(number(config.get("num-server-rounds")) or 0)
        self.finish = None

    def _selected(self, event: Mapping[str, Any]) -> None:
        chosen = event.get("chosen")
        if event.get("phase", "train") != "train" or not isinstance(chosen, list):
            return
        current = int(number(event.get("round")) or 0)
        if current != self.round:
            self.training = []
        self.round = current
        # Cohorts choose one after the other.
        self.training = list(dict.fromkeys([*self.training, *map(str, chosen)]))

    def _exchange(self, event: Mapping[str, Any]) -> None:
        kind = str(event.get("kind", "train"))
        down, up = (int(number(event.get(name)) or 0) for name in ("bytes-down", "bytes-up"))
        if kind.startswith("query"):
            self.traffic["selecting"] += down + up
        else:
            self.traffic += Counter(down=down, up=up)
        late, failed = event.get("late"), event.get("failed")
        self.late.update(map(str, late) if isinstance(late, list) else [])
        self.failed.update(map(str, failed) if isinstance(failed, Mapping) else [])
        if kind == "train":
            self.training = []
            told = event.get("reply-seconds")
            self.slowest = by_name(told.get("slowest")) if isinstance(told, Mapping) else {}
            self._exchange_seconds.append(number(event.get("seconds")) or 0.0)

    def _quarantined(self, event: Mapping[str, Any]) -> None:
        self.quarantined[str(event.get("client", "?"))] += 1

    def _evaluated(self, event: Mapping[str, Any]) -> None:
        if event.get("where") == "clients":
            self.worst = number(event.get("accuracy-worst-10"))
        elif (accuracy := number(event.get("accuracy"))) is not None:
            self.accuracies.append(accuracy)

    def _round_finished(self, event: Mapping[str, Any]) -> None:
        self.done = self.round = int(number(event.get("round")) or self.round)
        self._round_seconds.append(number(event.get("seconds")) or 0.0)

    def _run_finished(self, event: Mapping[str, Any]) -> None:
        self.finish = event
        self.training = []
