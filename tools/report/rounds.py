"""The numbers of each round: the columns of `rounds.csv`, and what each event adds to them."""

from collections.abc import Mapping, Sequence

from ...core.log.events import (
    Aggregated,
    Evaluated,
    Event,
    Exchanged,
    PrivacySpent,
    Quarantined,
    RoundFinished,
    Selected,
)
from ...core.tasks.metrics import AFTER_METRICS, BEFORE_METRICS, TAKEN, Metric
from ...core.wire.keys import IDENTIFY

Row = dict[str, float]


def csv_columns(metrics: Sequence[Metric]) -> tuple[str, ...]:
    """Return the columns of `rounds.csv` for a run with these metrics."""
    names = [metric.name for metric in metrics]
    own = [name for name in names if name != "loss"]
    spread = (f"clients-{name}-{part}" for name in names for part in PARTS)
    return (*BEFORE_METRICS, *own, "loss", *spread, *AFTER_METRICS)


PARTS = ("mean", "worst-10", "best-10", "variance")


def add_numbers(rows: dict[int, Row], current: int, event: Event) -> None:
    """Add what an event says of its round; the clients chosen are not counted here."""
    match event:
        case Selected() if event.seconds is not None:
            # Clients that are new are asked who they are; in simulation that starts them.
            waited = min(event.seconds, rows.setdefault(current, {}).pop("connecting", 0.0))
            told = {"select-seconds": event.seconds - waited}
            _add(rows, current, told | ({"connect-seconds": waited} if waited else {}))
        case Exchanged():
            _add(rows, current, _exchanged(event))
        case Quarantined():
            _add(rows, current, {"quarantined": 1})
        case PrivacySpent():
            _put(rows, current, {"epsilon": event.epsilon_most})
        case Aggregated():
            _put(rows, current, {"train-loss": event.metrics.get("train-loss")})
        case Evaluated():
            _put(rows, current, _evaluated(event))
        case RoundFinished():
            _put(rows, current, {"seconds": event.seconds})


def traffic(event: Exchanged) -> Row:
    """Return the bytes of an exchange by what they are for, as run, report and comparison count."""
    if event.kind in ("evaluate", IDENTIFY):
        return {"bytes-test": event.bytes_down + event.bytes_up}
    if event.kind.startswith("query"):
        return {"bytes-select": event.bytes_down + event.bytes_up}
    return {"bytes-down": event.bytes_down, "bytes-up": event.bytes_up}


def _exchanged(event: Exchanged) -> Row:
    sent = {"bytes-down": 0, "bytes-up": 0, "bytes-select": 0} | traffic(event)
    if event.kind == IDENTIFY:
        return {**sent, "connecting": event.seconds or 0.0}
    if event.kind != "train":
        return sent
    failed, late = len(event.failed), len(event.late)
    return {**sent, "received": event.received, "failed": failed, "late": late, "quarantined": 0}


def _evaluated(event: Evaluated) -> dict[str, float | None]:
    if event.where != "clients":
        known = {name: value for name, value in event.metrics.items() if name not in TAKEN}
        return {**known, "loss": event.loss}
    told = {"clients-loss-mean": event.loss}
    for name, spread in (event.spread or {}).items():
        parts = spread.model_dump(by_alias=True)
        told |= {f"clients-{name}-{part}": parts[part] for part in PARTS}
    return told


def _add(rows: dict[int, Row], current: int, told: Row) -> None:
    row = rows.setdefault(current, {})
    row |= {column: row.get(column, 0) + value for column, value in told.items()}


def _put(rows: dict[int, Row], current: int, told: Mapping[str, float | None]) -> None:
    known = {column: value for column, value in told.items() if value is not None}
    rows.setdefault(current, {}).update(known)
