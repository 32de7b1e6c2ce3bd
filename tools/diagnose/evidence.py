"""What the events of a run say of its clients."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.log import events as log
from ...core.wire.keys import AS_IT_CAME

Floats = NDArray[np.float64]


@dataclass
class RunEvidence:
    """A run, as far as a diagnosis looks at it."""

    started: log.RunStarted = field(default_factory=log.RunStarted)
    rounds: list[log.Examined] = field(default_factory=list)  # of training
    own: log.Examined = field(default_factory=log.Examined)  # of the evaluation on clients
    scores: dict[int, float] = field(default_factory=dict)  # the main metric on the server's data
    missed: Counter[str] = field(default_factory=Counter)  # rounds without an answer, or away
    bytes: int = 0  # both ways, by training

    @classmethod
    def of(cls, told: Iterable[log.Event | Mapping[str, Any]]) -> "RunEvidence":
        """Read the events of a run."""
        seen = cls()
        for event in log.as_events(told):
            match event:
                case log.RunStarted():
                    seen.started = event
                case log.Examined() if AS_IT_CAME in event.columns:
                    seen.own = event
                case log.Examined() if event.clients:
                    seen.rounds.append(event)
                case log.Evaluated(where="server", round=int(number)) if number:
                    value = event.value(seen.started.metrics[0].name)
                    seen.scores |= {} if value is None else {number: value}
                case log.Exchanged(kind="train"):
                    seen.bytes += event.bytes_down + event.bytes_up
                    seen.missed.update({*event.late, *event.failed})
                case log.RoundFinished():
                    seen.missed.update(event.away or [])
        return seen

    def by_client(self, name: str) -> list[dict[str, Any]]:
        """Return a column of each round: what clients said in it, of those that said anything."""
        rows = (zip(e.clients, e.columns.get(name, ()), strict=False) for e in self.rounds)
        return [{key: value for key, value in row if value is not None} for row in rows]

    def first(self, name: str) -> dict[str, Any]:
        """Return what each client said first in a column."""
        return {k: v for told in reversed(self.by_client(name)) for k, v in told.items()}

    def table(self, name: str) -> Floats:
        """Return a column by round (rows) and client, NaN where it is not known."""
        clients, told = self.first("num-examples"), self.by_client(name)
        return np.array([[row.get(key, np.nan) for key in clients] for row in told])

    def directions(self, without: Collection[str] = ()) -> dict[int, dict[str, list[float]]]:
        """Return the sketches of updates by round and client, but for round 1 and some clients."""
        told = [{k: v for k, v in r.items() if k not in without} for r in self.by_client("update")]
        return {number: rows for number, rows in enumerate(told, 1) if number > 1 < len(rows)}
