"""Follow a run in the terminal: ``python -m forager.tools.report.watch latest``, or its folder."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from ....server_app.run_folder import RunFolderError
from . import view
from .state import RunState
from .tail import LATEST, Tail, events_file


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Follow a run until it ends."""
    parser = argparse.ArgumentParser(
        prog="python -m forager.tools.report.watch", description=__doc__
    )
    parser.add_argument("run", nargs="?", default=LATEST, help="a run's folder, or 'latest'")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs lie")
    parser.add_argument("--poll", type=float, default=0.5, help="seconds between looks at the file")
    options = parser.parse_args(arguments)
    console = console or Console(highlight=False, soft_wrap=True)
    try:
        path = _wait_for(options.run, options.runs, options.poll, console)
        state = _follow(Tail(path), str(path.parent), options.poll, console)
    except RunFolderError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(view.ending(state), markup=False)
    return 0


def _wait_for(run: str, runs: Path, poll: float, console: Console) -> Path:
    path = events_file(run, runs)
    if path is None:
        console.print(f"waiting for a run in {runs}", markup=False)
    while path is None:
        time.sleep(poll)
        path = events_file(run, runs)
    return path


def _follow(tail: Tail, folder: str, poll: float, console: Console) -> RunState:
    if not console.is_terminal:
        return _until_end(tail, poll, _Lines(console))
    with Live(console=console, auto_refresh=False) as live:

        def redraw(state: RunState) -> None:
            live.update(view.panel(state, folder, tail.quiet_seconds()), refresh=True)

        return _until_end(tail, poll, redraw)


def _until_end(tail: Tail, poll: float, show: Callable[[RunState], None]) -> RunState:
    state = RunState()
    while True:
        events, anew = tail.read()
        if anew:
            state = RunState()
        state.take(events)
        show(state)
        if state.finish is not None:
            return state
        time.sleep(poll)


class _Lines:
    """A line whenever another round is over."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._told = -1

    def __call__(self, state: RunState) -> None:
        if state.done != self._told and (state.done or state.finish):
            self._told = state.done
            self.console.print(view.line(state), markup=False)


if __name__ == "__main__":
    sys.exit(main())
