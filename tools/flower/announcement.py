"""A run that is about to start, or that could not write its own end, for those who watch."""

import os
from pathlib import Path

from ...server_app.run_folder import RunFolder

_PREFIX = ".starting-"


def announce(run: Path) -> None:
    """Note beside a run's future folder that it is about to start."""
    run.parent.mkdir(parents=True, exist_ok=True)
    (run.parent / f"{_PREFIX}{run.name}").write_text(f"{os.getpid()}\n", encoding="utf-8")


def withdraw(run: Path) -> None:
    """Remove the note: the run has started, or never will."""
    (run.parent / f"{_PREFIX}{run.name}").unlink(missing_ok=True)


def starting(runs: Path) -> Path | None:
    """Return the folder of the run that a living process announced last, if it has not started."""
    notes = sorted(runs.glob(f"{_PREFIX}*"), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((runs / n.name.removeprefix(_PREFIX) for n in notes if _alive(n)), None)


def _alive(note: Path) -> bool:
    try:
        os.kill(int(note.read_text(encoding="utf-8")), 0)
    except (OSError, ValueError):
        return False
    return True


def note_end(run: Path, reason: str, message: str) -> None:
    """Write the end of a run that could not do so itself into its log, once."""
    if not (run / "events.jsonl").exists():
        return
    folder = RunFolder(run)
    events = folder.read_events()
    if any(event.get("event") == "run-finished" for event in events):
        return
    done = [e["round"] for e in events if e.get("event") == "round-finished" and e.get("round")]
    folder.append_event(
        {
            "event": "run-finished",
            "reason": reason,
            "rounds": max(done, default=0),
            "seconds": max((float(e.get("time") or 0) for e in events), default=0.0),
            "message": message,
        }
    )
