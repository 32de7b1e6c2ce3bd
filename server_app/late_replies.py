"""Training replies that come after their round: taken in on the side, for what they teach."""

import math

from ..core.log.events import LateReplied
from ..core.wire.changes import LACKS_BASE
from ..core.wire.replies import Replies
from ..core.wire.sizes import record_bytes
from ..strategies.federation.clock import Clock
from ..strategies.federation.federation import Federation
from .exchange import most_bytes, too_large

_MOST_BYTES = 2**28  # of late replies that are kept until the next round begins


class LateReplies:
    """Knows when to look for late replies, learns how long they took, and keeps what they say."""

    def __init__(self, federation: Federation, clock: Clock) -> None:
        self._federation = federation
        self._clock = clock
        self._looked = -math.inf  # when they were last looked for
        self._came: list[Replies] = []
        self._bytes = 0

    def expected(self, *, again: bool = False) -> list[str]:
        """Return the late messages to look for now: all of them, but not at every poll."""
        now = self._clock.now()
        if now - self._looked < self._clock.between_looks and not again:
            return []
        expected = self._federation.ledger.expected()
        self._looked = now if expected else self._looked
        return expected

    def collected(self) -> list[Replies]:
        """Return those that have come since the last call."""
        came, self._came, self._bytes = self._came, [], 0
        return came

    def take(self, table: Replies, server_round: int, largest: int) -> None:
        """Learn how long a late reply took, and keep it for those who learn from what it says.

        ``largest`` are the bytes of the largest message sent so far.
        """
        federation = self._federation
        assignment = federation.ledger.answered(table.asked[0])
        when = self._clock.now() if table.arrived is None else table.arrived
        if assignment is None or LACKS_BASE in table.metrics or when > assignment.expires:
            return
        federation.roster.meet(table)
        key = federation.key(assignment.node)
        size = table.row_bytes()[0]
        # A resumed run may have sent nothing yet.
        model = 0 if assignment.model is None else record_bytes(assignment.model)
        most = most_bytes(max(largest, model))
        if size + table.name_bytes() > most:
            federation.set_aside(server_round, assignment.node, too_large(size, most))
            return
        seconds = when - assignment.sent
        federation.heard(key, server_round, answered=True)
        if not federation.held.of(assignment.node):  # else it is known by now
            # Before it sees the next message, it will have seen all that were sent before.
            newest = federation.ledger.newest(assignment.node) or assignment
            federation.held.learn([assignment.node], newest.tag)
        federation.times.came_late(key, seconds, assignment.round)
        federation.note(
            LateReplied(
                round=server_round,
                cohort=assignment.cohort,
                client=key,
                asked_in=assignment.round,
                seconds=seconds,
                bytes_up=size,
            )
        )
        self._bytes += size
        if assignment.model is not None and self._bytes <= _MOST_BYTES:
            table.assignments = [assignment]
            self._came.append(table)
