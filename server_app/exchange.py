"""What comes of one batch of messages, what it teaches, and replies that come after their round."""

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from ..core.log.events import Exchanged, LateReplied, ReplySeconds
from ..core.wire.arrays import record_bytes
from ..core.wire.changes import LACKS_BASE
from ..core.wire.replies import Replies
from ..strategies.federation.clock import Clock
from ..strategies.federation.federation import Federation

_log = logging.getLogger("forager")
_MUCH_SLOWER, _OFTEN = 4.0, 3  # times the median, in so many rounds: then the log has advice
_MOST_TOLD = 100  # failures that the log takes; the event log has all
_MOST_BYTES = 2**28  # of late replies that are kept until the next round begins
_SLOWEST = 3  # clients of a round that the log names as slow
# A reply may be this many times as large as the largest message sent so far (which held a model),
# and some more: no method answers a model with more than a few arrays of its size.
_TIMES, _AND_MORE = 4, 2**20


def most_bytes(largest: int) -> int:
    """Return how large a reply may be, given the largest message sent so far."""
    return _TIMES * largest + _AND_MORE


def too_large(size: int, most: int) -> str:
    """Return why a reply is not read."""
    return f"a reply of {size:,} bytes: more than {most:,} is not read"


@dataclass
class Exchange:
    """The outcome of one batch of messages."""

    kind: str
    sent: int
    received: int = 0
    errors: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    bytes_down: int = 0
    bytes_up: int = 0
    resent: int = 0
    spared: dict[int, int] = field(default_factory=dict)  # bytes that a node was not sent
    took: dict[str, float] = field(default_factory=dict)  # seconds of each reply, where known
    limit: float | None = None  # seconds that clients have, for training

    def reply_seconds(self) -> ReplySeconds | None:
        """Return how long a reply took in the middle, and those of the slowest clients."""
        if not self.took:
            return None
        slowest = sorted(self.took, key=lambda client: -self.took[client])[:_SLOWEST]
        return ReplySeconds(
            median=median(self.took.values()),
            slowest={client: self.took[client] for client in slowest},
        )

    def fail(self, client: str, reason: str) -> None:
        """Note a failure; two clients may go by one name."""
        self.errors += 1
        self.failed[client] = reason

    def shortfall(self, received: int, needed: int, called: Callable[[str], str]) -> str:
        """Return why a round got too few replies."""
        text = f"{received} of {self.sent} clients answered, {needed} are needed"
        if self.failed:
            key, reason = next(iter(self.failed.items()))
            text += f"; {len(self.failed)} failed, client {called(key)}: {reason[:300]}"
        if self.late:
            text += f"; late: {', '.join(map(called, self.late[:10]))}"
        return text


class Lessons:
    """What exchanges teach of the clients: who is slow, late or fails."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._slow: Counter[str] = Counter()  # rounds that a client alone has drawn out
        self._told: set[tuple[str, str]] = set()  # failures that are in the log already

    def learn_times(
        self, exchange: Exchange, server_round: int, waited: float, *, in_vain: bool
    ) -> None:
        """Learn who took how long; a client that never answers costs the whole deadline."""
        times = self._federation.times
        for key, seconds in exchange.took.items():
            times.replied(key, seconds, server_round)
        for key in exchange.failed:
            times.failed(key, server_round)
        for key in exchange.late:
            if in_vain:
                self._federation.heard(key, server_round, answered=False)
                times.late(key, waited, server_round)
            else:
                times.cut_off(key, waited)

    def advise(self, exchange: Exchange) -> None:
        """Say once how not to wait for a client that is in time, but long after the others."""
        seconds = exchange.reply_seconds()
        if seconds is None or max(self._slow.values(), default=0) >= _OFTEN:
            return
        client, longest = next(iter(seconds.slowest.items()))
        if longest > _MUCH_SLOWER * max(1.0, seconds.median):
            self._slow[client] += 1
            if self._slow[client] == _OFTEN:
                _log.warning(
                    "%d rounds waited for client %s, %.0f s in the last one, %.0f s for half of "
                    "the clients: with round.over-commit = 0.1 they need not wait for the slowest",
                    *(_OFTEN, self._federation.roster.called(client), longest, seconds.median),
                )

    def note(
        self, exchange: Exchange, server_round: int, seconds: float, simulated: float | None
    ) -> None:
        """Write down how an exchange went; a failure is logged once."""
        alike = dict[str, list[str]]()
        for client, reason in exchange.failed.items():
            if (client, reason) not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add((client, reason))
                alike.setdefault(reason, []).append(client)
        for reason, clients in alike.items():
            others = f" and {len(clients) - 1} others" if clients[1:] else ""
            told = (self._federation.roster.called(clients[0]), others, exchange.kind, reason[:300])
            _log.warning("client %s%s failed at %s: %s", *told)
        self._federation.note(
            Exchanged(
                round=server_round,
                kind=exchange.kind,
                sent=exchange.sent,
                received=exchange.received,
                failed=exchange.failed,
                late=exchange.late,
                resent=exchange.resent,
                bytes_spared=sum(exchange.spared.values()),
                bytes_down=exchange.bytes_down,
                bytes_up=exchange.bytes_up,
                seconds=seconds,
                simulated_seconds=simulated or None,
                reply_seconds=exchange.reply_seconds(),
                deadline=exchange.limit if self._federation.times.learns_deadline else None,
            )
        )


class LateReplies:
    """Training replies that come after their round: taken in on the side, for what they teach."""

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
        """Learn from a late reply; ``largest`` are the bytes of the largest message sent so far."""
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
