"""The numbers of each round as they come, to be passed on during a run."""

import math

from ...server_app.run_folder import RunFolder
from .history import History
from .tail import Tail


class RoundValues:
    """What the log of a run says of rounds that were not asked for yet."""

    def __init__(self, folder: RunFolder) -> None:
        self._log = Tail(folder.events_path)

    def skip(self) -> None:
        """Pass over what is there: the rounds of an earlier leg."""
        self._log.read()

    def new(self) -> list[tuple[int, dict[str, float]]]:
        """Return the rounds since the last call, under the names of ``rounds.csv``."""
        events, _ = self._log.read()
        rows = History.from_events(events).rows
        return [(current, _finite(rows[current])) for current in sorted(rows)]


def _finite(row: dict[str, float]) -> dict[str, float]:
    known = {name: value for name, value in row.items() if name != "round"}
    return {name: float(value) for name, value in known.items() if math.isfinite(value)}
