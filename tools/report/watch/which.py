"""Which log to follow: that of a run by its folder, or the latest."""

from pathlib import Path

from ....server_app.run_folder import RunFolderError
from ...flower.announcement import starting

LATEST = "latest"


def events_file(where: str, runs: Path) -> Path | None:
    """Return the log to follow, or None while there is none yet.

    A run that is about to start is the latest already.
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
