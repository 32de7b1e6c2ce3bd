"""Any ClientApp on virtual clients in this process, without Flower's programs."""

from collections.abc import Iterable
from typing import Any

from flwr.app import Error, Message
from flwr.clientapp import ClientApp

from ...core.wire.flower_private import by_wire
from .local_grid import LocalGrid

_RAISED = 2  # Flower's code for an exception in a ClientApp


class AppGrid(LocalGrid):
    """A grid for ``strategy.start`` whose clients are an app, called one after the other.

    Each client knows its ``partition-id`` and ``num-partitions``. Messages and replies are
    serialised as on a real grid, and an exception is an error reply.
    """

    def __init__(
        self, app: ClientApp, num_clients: int, run_config: dict[str, Any] | None = None
    ) -> None:
        super().__init__(num_clients, run_config or {}, check_wire=True)
        self.app = app

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer all that is waiting."""
        waiting = [self._pending.pop(i) for i in message_ids if i in self._pending]
        return [by_wire(self.answer(requests[row])) for requests, row in waiting]

    def answer(self, message: Message) -> Message:
        """Return what the app makes of a message."""
        context = self.contexts[message.metadata.dst_node_id]
        try:
            return self.app(message, context)
        except Exception as error:  # whatever the app raises
            return Message(Error(_RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
