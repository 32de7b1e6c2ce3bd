"""The runs that a page can follow, each known by a name and never by a path."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...server_app.run_folder import Event
from ..report.history import History
from ..report.tail import Tail

MOST_SHOWN = 4  # runs side by side, unless the user asks for others
LONG_AGO = 600.0  # seconds without news after which a run does not count as running


@dataclass
class FollowedRun:
    """One run: its log as far as it was read."""

    name: str  # by which the page knows it
    tail: Tail  # its log
    history: History = field(default_factory=History)
    events: list[Event] = field(default_factory=list)
    version: int = 0  # rises with every event

    def read(self) -> None:
        """Take in what was logged since the last call."""
        events, restarted = self.tail.read()
        if restarted:
            self.history, self.events = History(), []
            self.version += 1
        if events:
            self.history.take(events)
            self.events += events
            self.version += 1

    @property
    def going_on(self) -> bool:
        """Whether there may be more to come."""
        return self.history.finish is None and self.tail.quiet_seconds() < LONG_AGO


class Runs:
    """The runs directly below one output folder (no links that lead elsewhere), and those named."""

    def __init__(self, output: Path, named: Iterable[Path] = ()) -> None:
        self.output = output
        self._followed: dict[str, FollowedRun] = {}
        self.wanted = [self._add(path.resolve() / "events.jsonl").name for path in named]

    def _add(self, path: Path) -> FollowedRun:
        name, number = path.parent.name, 2
        while name in self._followed and self._followed[name].tail.path != path:
            name, number = f"{path.parent.name} ({number})", number + 1
        return self._followed.setdefault(name, FollowedRun(name, Tail(path)))

    def look(self) -> list[FollowedRun]:
        """Return all runs that there are now, the one written to last first."""
        root = self.output.resolve()
        for path in self.output.glob("*/events.jsonl"):
            whole = path.resolve()
            if whole.name == "events.jsonl" and whole.parent.parent == root:
                self._add(whole)
        there = [run for run in self._followed.values() if run.tail.path.exists()]
        return sorted(there, key=lambda run: run.tail.quiet_seconds())

    def shown(self, asked: Iterable[str]) -> list[FollowedRun]:
        """Return the runs to show, brought up to date; names that there are not are left out."""
        there = self.look()
        names = list(asked) or self.wanted
        chosen = [run for name in names for run in there if run.name == name]
        if not names:
            recent = [run for run in there if run.tail.quiet_seconds() < LONG_AGO]
            for run in recent:
                run.read()
            chosen = [run for run in recent if run.going_on][:MOST_SHOWN] or there[:1]
        for run in chosen:
            run.read()
        return chosen
