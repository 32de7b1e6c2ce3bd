"""What happens to a run while its parts are killed: waiting for it, looking at it, timing it."""

import json
import time
from typing import Any

from deployed import PATIENCE, Deployment, within
from forager.tools.flower.processes import Program

_AT_WORK = 0.3  # seconds after which a device that got a message is in the midst of it


class Story:
    """A run of a deployment, told by its events.

    Parameters
    ----------
    deployment : Deployment
        What the run runs on.
    name : str
        Name of the run.
    """

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.deployment = deployment
        self.folder = deployment.results / name
        self._began = time.monotonic()
        self._seen = 0

    @property
    def programs(self) -> dict[str, Program]:
        """The newest program of every name."""
        return {program.log.parent.name: program for program in self.deployment.programs}

    # --- What happened

    def events(self, kind: str, since: int = 0) -> list[dict[str, Any]]:
        """Return events of one kind, those after a mark; the log may still be growing."""
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        found = [json.loads(line) for line in lines[since:] if line.endswith("\n")]
        return [event for event in found if not kind or event["event"] == kind]

    def exchanges(self, kind: str, since: int = 0) -> list[dict[str, Any]]:
        """Return the exchanges of one kind of message."""
        return [event for event in self.events("exchange", since) if event["kind"] == kind]

    def clients(self) -> set[str]:
        """Return the names of all that were ever chosen."""
        return {name for event in self.events("selected") for name in event["chosen"]}

    def explain(self) -> str:
        """Return what helps to find out why it does not go on."""
        words = [
            f"--- {name}\n{program.last_words(25)}"
            for name, program in self.programs.items()
            if name != "superlink"
        ]
        events = [json.dumps(event)[:300] for event in self.events("")[-8:]]
        return "\n".join([*words, "--- events", *events])

    # --- Waiting

    def until_round(self, number: int) -> None:
        """Wait until a round is over."""
        self._within(lambda: len(self.events("round-finished")) >= number)

    def until_next_round(self, since: int | None = None) -> float:
        """Wait until a round is over that was not at the last mark; return the seconds."""
        mark = self._seen if since is None else since
        self._within(lambda: bool(self.events("round-finished", mark)))
        return time.monotonic() - self._began

    def until_at_work(self, device: str, kind: str) -> None:
        """Wait until a device is in the midst of answering a message of that kind."""
        log = self.programs[device].log
        while True:
            got, sent = f"Receiving: {kind} message", "Sending: "
            before = log.read_text().count(got)
            self._within(lambda: log.read_text().count(got) > before)  # noqa: B023
            time.sleep(_AT_WORK)
            if sent not in log.read_text().rpartition(got)[2]:
                return

    def until_back(self, device: str, since: int | None = None) -> None:
        """Wait until a device is chosen and a training that it is in brings all replies."""
        mark = self._seen if since is None else since

        def is_back() -> bool:
            asked = [e["round"] for e in self.events("selected", mark) if device in e["chosen"]]
            return any(
                exchange["round"] in asked
                and device not in [*exchange["failed"], *exchange["late"]]
                and exchange["received"] > 0
                for exchange in self.exchanges("train", mark)
            )

        self._within(is_back)

    def _within(self, condition: Any) -> None:
        within(PATIENCE, condition, self.explain)

    # --- Doing

    def mark(self, what: str) -> int:
        """Say what is done now; times are measured from here, events looked at from here."""
        print(f"\nmeasured: {what}", flush=True)
        self._began = time.monotonic()
        self._seen = len(self.events(""))
        return self._seen

    def kill(self, name: str, when: str) -> int:
        """Kill a program with all that it started."""
        mark = self.mark(f"{name} killed {when}")
        self.programs[name].kill()
        return mark

    def measure(self, what: str, seconds: float | None = None) -> None:
        """Print the seconds since the last mark."""
        passed = time.monotonic() - self._began if seconds is None else seconds
        print(f"measured:   {what} after {passed:.0f} s", flush=True)

    def expect_trouble(self, device: str, kind: str) -> None:
        """Wait until an exchange since the last mark has missed the device's answer."""

        def missed() -> bool:
            return any(
                device in [*exchange["failed"], *exchange["late"]]
                for exchange in self.exchanges(kind, self._seen)
            )

        self._within(missed)

    def end(self) -> None:
        """Stop the run; it must end as runs that are stopped do."""
        self.deployment.tool("submit.py", "stop")
        self._within(lambda: bool(self.events("run-finished")))
        reasons = [event["reason"] for event in self.events("run-finished")]
        assert reasons == ["interrupted"], reasons
        assert len(self.events("run-started")) == 1
