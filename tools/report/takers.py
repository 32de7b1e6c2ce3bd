"""What each event of a log adds to what is known of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .lenient import keys_in, number, round_of

if TYPE_CHECKING:
    from .history import History

Row = dict[str, float]
_MOST_CLIENTS = 10**7
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


def _add(row: Row, column: str, value: Any) -> None:
    row[column] = row.get(column, 0) + (number(value) or 0)


def _put(row: Row, column: str, value: Any) -> None:
    known = number(value)
    if known is not None:
        row[column] = known


def _clients(value: Any) -> int:
    """Return a number of clients; none for one that no federation has."""
    count = int(number(value) or 0)
    return count if 0 <= count <= _MOST_CLIENTS else 0


def _run_started(history: "History", event: Mapping[str, Any]) -> None:
    history.strategy = str(event.get("strategy") or "")
    config = event.get("config")
    history.config = dict(config) if isinstance(config, Mapping) else {}
    history.population = max(history.population, _clients(event.get("clients")))


def _selected(history: "History", event: Mapping[str, Any]) -> None:
    chosen, current = keys_in(event.get("chosen")), round_of(event)
    history.clients.extend(chosen)
    history.population = max(history.population, _clients(event.get("available")))
    if current is None:
        return
    row = history.rows.setdefault(current, {})
    if number(event.get("seconds")) is not None:
        _add(row, "select-seconds", event["seconds"])
    if event.get("phase", "train") == "train":
        before = history.chosen.get(current, [])
        history.chosen[current] = list(dict.fromkeys([*before, *chosen]))
        row["chosen"] = len(history.chosen[current])


def _exchange(history: "History", event: Mapping[str, Any]) -> None:
    current, kind = round_of(event), str(event.get("kind", "train"))
    failed = event.get("failed")
    failed = failed if isinstance(failed, Mapping) else {}
    late = keys_in(event.get("late"))
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
        if isinstance(event.get("reply-seconds"), Mapping):
            history.notes.setdefault("reply-times", {})[current, ""] = event["reply-seconds"]


def _count_bytes(row: Row, kind: str, event: Mapping[str, Any]) -> None:
    down, up = number(event.get("bytes-down")) or 0, number(event.get("bytes-up")) or 0
    query = kind.startswith("query")
    _add(row, "bytes-down", 0 if query else down)
    _add(row, "bytes-up", 0 if query else up)
    _add(row, "bytes-select", down + up if query else 0)


def _uplink(history: "History", event: Mapping[str, Any]) -> None:
    current, dense = round_of(event), number(event.get("bytes-dense"))
    if current is not None and dense:
        spared = dense - (number(event.get("bytes-sparse")) or 0)
        _add(history.rows.setdefault(current, {}), "bytes-up-dense", spared)


def _quarantined(history: "History", event: Mapping[str, Any]) -> None:
    current = round_of(event)
    if current is None:
        return
    client, reason = str(event.get("client", "?")), str(event.get("reason", ""))
    history.problems.append(Problem(current, client, "train", "quarantined", reason))
    _add(history.rows.setdefault(current, {}), "quarantined", 1)


def _privacy(history: "History", event: Mapping[str, Any]) -> None:
    """Note what the client that was asked most often has given away so far."""
    current, history.delta = round_of(event), number(event.get("delta"))
    if current is not None:
        _put(history.rows.setdefault(current, {}), "epsilon", event.get("epsilon-most"))


def _aggregated(history: "History", event: Mapping[str, Any]) -> None:
    current, metrics = round_of(event), event.get("metrics")
    if current is not None and isinstance(metrics, Mapping):
        _put(history.rows.setdefault(current, {}), "train-loss", metrics.get("train-loss"))


def _evaluated(history: "History", event: Mapping[str, Any]) -> None:
    current, on_clients = round_of(event), event.get("where") == "clients"
    if current is None:
        return
    row = history.rows.setdefault(current, {})
    for name in _ON_CLIENTS if on_clients else ("accuracy", "loss"):
        _put(row, f"clients-{name}" if on_clients else name, event.get(name))
    if not on_clients and isinstance(event.get("cohorts"), Mapping):
        note = {"accuracy": event["cohorts"]}
        history.notes.setdefault("cohorts-on-server", {})[current, ""] = note


def _round_finished(history: "History", event: Mapping[str, Any]) -> None:
    current = round_of(event)
    if current is not None:
        _put(history.rows.setdefault(current, {}), "seconds", event.get("seconds"))


def _noted(history: "History", event: Mapping[str, Any]) -> None:
    """Keep what a method wrote down; its own pictures know what it means."""
    current = round_of(event)
    if current is not None:
        notes = history.notes.setdefault(str(event["event"]), {})
        notes[current, str(event.get("cohort") or "")] = event


def _run_finished(history: "History", event: Mapping[str, Any]) -> None:
    history.finish = dict(event)


TAKERS: dict[str, Callable[["History", Mapping[str, Any]], None]] = {
    "run-started": _run_started,
    "selected": _selected,
    "exchange": _exchange,
    "uplink": _uplink,
    "quarantined": _quarantined,
    "privacy": _privacy,
    "aggregated": _aggregated,
    "evaluated": _evaluated,
    "coresets": _noted,
    "streams": _noted,
    "cohorts": _noted,
    "cohorts-evaluated": _noted,
    "regrouped": _noted,
    "round-finished": _round_finished,
    "run-finished": _run_finished,
}
