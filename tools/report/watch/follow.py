"""Follow a run in the terminal until it ends: the one named, or the latest."""

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ....server_app.run_folder import RunFolderError
from ...flower.announcement import starting
from ..history import History
from ..tail import Tail
from . import view


def follow(run: str, runs: Path, poll: float = 0.5, console: Console | None = None) -> int:
    """Follow a run until it ends; return an exit code."""
    console = console or Console(highlight=False, soft_wrap=True)
    try:
        path = _wait_for(run, runs, poll, console)
        state = _follow(Tail(path), str(path.parent), poll, console)
    except KeyboardInterrupt:
        return 130
    console.print(f"{path.parent}: {view.ending(state)}", markup=False)
    return 0


def _wait_for(run: str, runs: Path, poll: float, console: Console) -> Path:
    path, said = events_file(run, runs), ""
    while path is None:
        coming = starting(runs) if run == LATEST else None
        text = f"waiting for a run in {runs}"
        if coming is not None:
            text = f"{coming.name} is starting; Flower takes 5 to 15 seconds"
        if text != said:
            console.print(text, markup=False)
        said = text
        time.sleep(poll)
        path = events_file(run, runs)
    return path


def _follow(tail: Tail, folder: str, poll: float, console: Console) -> History:
    if not console.is_terminal:
        return _until_end(tail, poll, _Lines(console))
    with Live(console=console, auto_refresh=False) as live:

        def redraw(state: History) -> None:
            live.update(view.panel(state, folder, tail.quiet_seconds()), refresh=True)

        return _until_end(tail, poll, redraw)


def _until_end(tail: Tail, poll: float, show: Callable[[History], None]) -> History:
    state = History()
    while True:
        events, restarted = tail.read()
        if restarted:
            state = History()
        state.take(events)
        show(state)
        if state.finish is not None:
            return state
        time.sleep(poll)


class _Lines:
    """A line whenever another round is over."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._shown = -1

    def __call__(self, state: History) -> None:
        done = state.rounds_done
        if done != self._shown and (done or state.finish):
            self._shown = done
            self.console.print(view.line(state), markup=False)


LATEST = "latest"


def events_file(where: str, runs: Path) -> Path | None:
    """Return the log to follow, or None while there is none yet."""
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
