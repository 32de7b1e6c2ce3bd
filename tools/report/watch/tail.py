"""Read a log while it is being written."""

import json
import os
import time
from pathlib import Path

from ....server_app.run_folder import Event, RunFolderError
from ...flower.announcement import starting

LATEST = "latest"


class Tail:
    """The new lines of an `events.jsonl`.

    Parameters
    ----------
    path : Path
        The file; it need not exist yet.
    """

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
        events = [_parse(line) for line in whole.splitlines()]
        return [event for event in events if event is not None], again

    def quiet_seconds(self) -> float:
        """Return how long ago the last line was written."""
        try:
            return max(0.0, time.time() - self.path.stat().st_mtime)
        except FileNotFoundError:
            return 0.0


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def events_file(where: str, runs: Path) -> Path | None:
    """Return the log to follow, or None while there is none yet.

    A run that is about to start is the latest already.

    Parameters
    ----------
    where : str
        A run's folder, or "latest" for the one that was written to last.
    runs : Path
        Where run folders are.

    Raises
    ------
    RunFolderError
        If `where` names a folder that does not exist.
    """
    if where != LATEST:
        if not Path(where).is_dir():
            raise RunFolderError(f"{where!r} is not a run folder: name one, or {LATEST!r}")
        return Path(where) / "events.jsonl"
    coming = starting(runs)
    if coming is not None:
        path = coming / "events.jsonl"
        return path if path.exists() else None
    files = sorted(runs.glob("*/events.jsonl"), key=lambda path: path.stat().st_mtime)
    return files[-1] if files else None
