"""The rounds of one run as rows of numbers: those of ``rounds.csv``, and what they cost so far."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

from ....core.log.events import Event, as_events
from ...report.formatting import jain_index
from ...report.history import History
from .measures import EVENNESS, SELECTING
from .meter import Metered


def rows_of(log: Iterable[Event | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per round, in order; round 0 is the model before training.

    Beside the columns of ``rounds.csv`` a row has the bytes, work and seconds of the run up to
    there (`Metered`, and what choosing took on the server), and the evenness of participation so
    far (Jain's index).

    >>> rows = rows_of([
    ...     {"event": "selected", "round": 1, "phase": "train", "chosen": ["a"], "available": 2},
    ...     {"event": "selected", "round": 2, "phase": "train", "chosen": ["b"], "available": 2},
    ...     {"event": "metered", "round": 2, "bytes": 70},
    ... ])
    >>> [row["evenness"] for row in rows], rows[1]["bytes"]
    ([0.5, 1.0], 70)
    """
    events = list(as_events(log))
    history = History.from_events(events)
    costs = {event.round: event for event in events if isinstance(event, Metered)}
    rounds = sorted(history.rows)
    rows: list[dict[str, Any]] = [{"round": number, **history.rows[number]} for number in rounds]
    for row, even in zip(rows, _evenness(history, rounds), strict=True):
        cost = costs.get(row["round"], Metered())
        row |= cost.model_dump(by_alias=True, exclude={"round", "cohort", "time"})
        if even is not None:
            row[EVENNESS] = even
    choosing = accumulate(row.get("select-seconds", 0.0) for row in rows)
    for row, seconds in zip(rows, choosing, strict=True):
        row[SELECTING] = seconds
    return rows


def _evenness(history: History, rounds: list[int]) -> list[float | None]:
    """Return Jain's index of the times that clients were chosen up to each round."""
    counts: Counter[str] = Counter()
    found = []
    for number in rounds:
        counts.update(history.chosen.get(number, []))
        never = history.population - len(counts)
        found.append(jain_index([*counts.values(), *[0] * never]))
    return found
