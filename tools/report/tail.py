"""Read a log while it is being written."""

import os
import time
from pathlib import Path

from ...server_app.run_folder import Event, parsed_event


class Tail:
    """The new lines of an `events.jsonl`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode, self._position = 0, 0

    def read(self) -> tuple[list[Event], bool]:
        """Return the events since the last call, and whether the log starts again.

        A run that is resumed replaces its log by a shorter one. A line that is still being written
        waits for the next call.
        """
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
