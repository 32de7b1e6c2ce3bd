"""What a run costs: bytes, work of the clients, and seconds of the simulated clock.

Work is the processor time that the clients' handlers take on this machine: training, and whatever
else a method asks of them (proxies, coresets, ...).
"""

from collections.abc import Iterable
from time import process_time
from typing import Any

from flwr.app import Message

from ....client_app.identity import client_data, client_task
from ....core.wire.keys import IDENTIFY
from ....server_app.callbacks.base import Callback
from ....server_app.loop import Loop
from ....strategies.layer import Journal
from ...engine.local_grid import LocalGrid
from .budget import Budget

EVENT = "metered"
# Evaluation is for the experimenter; who is who is asked again whenever a run goes on.
_NOT_COUNTED = ("evaluate", IDENTIFY)


class MeteredGrid(LocalGrid):
    """A local grid that measures what its clients do.

    Attributes
    ----------
    client_seconds : float
        Processor time of all clients' handlers so far.
    """

    client_seconds = 0.0

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer pending messages and measure how long that takes."""
        ids = list(message_ids)
        for message_id in ids:
            self._load_data(message_id)
        started = process_time()
        replies = list(super().pull_messages(ids))
        if replies and replies[0].metadata.message_type not in _NOT_COUNTED:
            self.client_seconds += process_time() - started
        return replies

    def _load_data(self, message_id: str) -> None:
        """Let a client's data be there before the clock starts: a device has them at hand."""
        if message_id in self._pending:
            context = self.contexts[self._pending[message_id].metadata.dst_node_id]
            client_data(context, client_task(context))


class Meter(Callback):
    """Note after every round what the run has cost so far, and end it when its budget is spent.

    Parameters
    ----------
    grid : MeteredGrid
        Measures the clients.
    budget : Budget
        What the run may spend.
    before : dict
        What it had spent when it was stopped the last time; empty at first.
    """

    def __init__(self, grid: MeteredGrid, budget: Budget, before: dict[str, Any]) -> None:
        self.grid = grid
        self.budget = budget
        self._bytes = int(before.get("bytes", 0))
        self._selecting = int(before.get("bytes-selecting", 0))
        self._work = float(before.get("client-seconds", 0.0))
        self._time = float(before.get("simulated-seconds", 0.0))

    def on_run_start(self, loop: Loop) -> None:
        """Listen to what is sent."""
        loop.grid.journal = self._listening(loop.grid.journal)

    def _listening(self, journal: Journal) -> Journal:
        def listen(event: str, **fields: Any) -> None:
            if event == "exchange" and fields["kind"] not in _NOT_COUNTED:
                size = fields["bytes-down"] + fields["bytes-up"]
                self._bytes += size
                self._selecting += size if fields["kind"].startswith("query") else 0
                self._time += fields.get("simulated-seconds", 0.0)
            journal(event, **fields)

        return listen

    def on_round_end(self, loop: Loop) -> str | None:
        """Write down the cost; a text ends the run."""
        cost = {
            "round": loop.round,
            "bytes": self._bytes,
            "bytes-selecting": self._selecting,
            "client-seconds": self._work + self.grid.client_seconds,
            "simulated-seconds": self._time,
        }
        loop.journal(EVENT, **cost)
        return "early-stop" if self.budget.spent([cost]) >= self.budget.amount else None
