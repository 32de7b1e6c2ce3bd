"""What a run costs: bytes, processor time of the clients, and seconds of the simulated clock."""

from collections.abc import Iterable
from time import process_time

from flwr.app import Message

from ....client_app.side import side_of
from ....core.log.events import Count, Event, Exchanged
from ....core.wire.keys import IDENTIFY
from ....core.wire.requests import Requests
from ....server_app.callbacks.base import Callback
from ....server_app.loop import Loop
from ...engine.local_grid import LocalGrid
from ...report.rounds import traffic
from .budget import Budget

# Evaluation is for the experimenter; who is who is asked again whenever a run continues.
_NOT_COUNTED = ("evaluate", IDENTIFY)


class Metered(Event, name="metered"):
    """What a run has cost up to the end of a round."""

    bytes: Count = 0
    bytes_selecting: Count = 0
    client_seconds: float = 0.0
    simulated_seconds: float = 0.0


class MeteredGrid(LocalGrid):
    """A local grid that measures what its clients do."""

    client_seconds = 0.0  # processor time of all clients' handlers so far

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer pending messages and measure how long that takes."""
        ids = list(message_ids)
        waiting = list({id(t): t for i in ids if (t := self.pending_table(i)) is not None}.values())
        for requests in waiting:
            self._load_data(requests)
        started = process_time()
        replies = super().pull_messages(ids)
        if waiting and waiting[0].kind not in _NOT_COUNTED:
            self.client_seconds += process_time() - started
        return replies

    def _load_data(self, requests: Requests) -> None:
        """Let clients' data be there before the clock starts: a device has them at hand."""
        contexts = [self.contexts[node] for node in requests.nodes]
        side_of(contexts[0]).holdings(contexts)


class Meter(Callback):
    """Note after every round what the run has cost so far, and end it when its budget is spent."""

    def __init__(self, grid: MeteredGrid, budget: Budget, before: Metered) -> None:
        self.grid = grid
        self.budget = budget
        self._bytes = before.bytes
        self._selecting = before.bytes_selecting
        self._work = before.client_seconds
        self._time = before.simulated_seconds

    def on_run_start(self, loop: Loop) -> None:
        """Listen to what is sent."""
        journal = loop.federation.journal

        def listen(event: Event) -> None:
            if isinstance(event, Exchanged):
                self._count(event)
            journal(event)

        loop.federation.journal = listen

    def _count(self, exchange: Exchanged) -> None:
        sent = traffic(exchange)
        if "bytes-test" not in sent:
            self._bytes += int(sum(sent.values()))
            self._selecting += int(sent.get("bytes-select", 0))
            self._time += exchange.simulated_seconds or 0.0

    def on_round_end(self, loop: Loop) -> str | None:
        """Record the cost; a text ends the run."""
        metered = Metered(
            round=loop.round,
            bytes=self._bytes,
            bytes_selecting=self._selecting,
            client_seconds=self._work + self.grid.client_seconds,
            simulated_seconds=self._time,
        )
        loop.federation.note(metered)
        spent = self.budget.spent([metered.to_dict()])
        return "early-stop" if spent >= self.budget.amount else None
