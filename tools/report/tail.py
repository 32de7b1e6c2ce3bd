"""Read a log while it is being written, event by event or as the numbers of its rounds."""

import math
import os
import time
from pathlib import Path

from ...server_app.run_folder import Event, RunFolder, parsed_event
from .history import History


class Tail:
    """The new lines of an `events.jsonl`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode, self._position = 0, 0

    def read(self) -> tuple[list[Event], bool]:
        """Return the complete new events, and whether the log starts again (a resumed run)."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                again = found.st_ino != self._inode or found.st_size < self._position
                if again:
                    self._inode, self._position = found.st_ino, 0
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return [], False
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        events = [parsed_event(line) for line in whole.splitlines()]
        return [event for event in events if event is not None], again

    def quiet_seconds(self) -> float:
        """Return how long ago the last line was written."""
        try:
            return max(0.0, time.time() - self.path.stat().st_mtime)
        except FileNotFoundError:
            return 0.0


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
