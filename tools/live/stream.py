"""What a browser is sent: everything at first, then what has changed."""

import hashlib
import json
from collections.abc import Iterator
from threading import Lock
from typing import Any
from urllib.parse import quote

from ..report.formatting import natural_order
from . import fragments
from .fragments import Pictures
from .runs import FollowedRun, Runs

MOST_OFFERED = 200


class Shared:
    """The runs and their pictures, shared by all browsers that look."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._pictures: dict[tuple[str, ...], Pictures] = {}
        self._lock = Lock()

    def look(
        self, asked: tuple[str, ...], *, draw: bool = True
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return all messages that describe how things stand, as pairs of kind and content."""
        with self._lock:
            shown = self.runs.shown(asked)
            if draw:
                self._draw_one(shown)
            messages = [("list", self._offer(shown))]
            if len(shown) > 1:
                messages.append(("run", _message("all", "all runs", self._of(shown).parts)))
            return messages + [("run", self._run(run)) for run in shown]

    def _of(self, runs: list[FollowedRun]) -> Pictures:
        return self._pictures.setdefault(tuple(run.name for run in runs), Pictures())

    def _draw_one(self, shown: list[FollowedRun]) -> None:
        """Draw what has waited longest: a run, or all of them together."""
        each = [[run] for run in shown] + ([shown] if len(shown) > 1 else [])
        due = [runs for runs in each if self._of(runs).due(runs)]
        if due:
            longest = min(due, key=lambda runs: self._of(runs).drawn_at)
            self._of(longest).draw(longest)

    def _offer(self, shown: list[FollowedRun]) -> dict[str, Any]:
        # By name: an order that changed with every event could not be clicked on.
        there = sorted(self.runs.look(), key=lambda run: natural_order(run.name), reverse=True)
        ids = [identifier(run.name) for run in shown]
        offered = [{"name": run.name, "shown": run in shown} for run in there[:MOST_OFFERED]]
        return {"runs": offered, "shown": (["all"] if len(ids) > 1 else []) + ids}

    def _run(self, run: FollowedRun) -> dict[str, Any]:
        parts = {
            "head": fragments.head(run),
            "status": fragments.status(run),
            "now": fragments.now(run),
            "faults": fragments.faults(run),
            **self._of([run]).parts,
            "save": f'<a href="report?run={quote(run.name)}" download>Save as a report</a>',
        }
        return _message(identifier(run.name), run.name, parts)


def identifier(name: str) -> str:
    """Return the id of a run's place on the page: letters and digits, whatever its name."""
    return "r" + hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def _message(place: str, label: str, parts: dict[str, str]) -> dict[str, Any]:
    known = {name: html for name, html in parts.items() if html}
    return {"id": place, "label": label, "order": list(known), "parts": known}


class Changes:
    """What one browser has not been sent yet."""

    def __init__(self) -> None:
        self._list = ""
        self._sent: dict[str, dict[str, Any]] = {}  # by its place on the page

    def of(self, messages: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
        """Return the events of a stream, as text, for what is new in the messages."""
        for kind, content in messages:
            if kind == "list":
                data = json.dumps(content)
                if data != self._list:
                    self._forget(content["shown"])
                    self._list = data
                    yield event(kind, data)
                continue
            before = self._sent.get(content["id"], {"parts": {}, "order": None})
            old = before["parts"]
            new = {n: html for n, html in content["parts"].items() if old.get(n) != html}
            if new or content["order"] != before["order"]:
                self._sent[content["id"]] = content
                yield event(kind, json.dumps({**content, "parts": new}))

    def _forget(self, shown: list[str]) -> None:
        """Drop what the page drops, too: if that comes back, it is sent whole."""
        self._sent = {place: content for place, content in self._sent.items() if place in shown}


def event(kind: str, data: str) -> str:
    """Write one server-sent event; JSON has no line breaks of its own."""
    return f"event: {kind}\ndata: {data}\n\n"
