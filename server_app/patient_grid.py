"""Sending messages and waiting for replies: deadlines, accounting, a name for every failure.

Flower's ``send_and_receive`` polls every three seconds in deployment, waits for the last client,
and does not say whose reply is missing. This does, around any Grid. Training replies that come
after their round are taken in on the side, for what they teach: see :meth:`PatientGrid.late`.
"""

import logging
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from statistics import median
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from ..core.log.events import Exchanged, ReplySeconds
from ..core.log.text import shorten
from ..core.wire.records import answered_id
from ..strategies.federation.federation import Federation
from ..strategies.federation.grids import GridWrapper
from .late_replies import LateReplies, most_bytes, too_large
from .short_messages import BRING_A_MODEL, in_short

_log = logging.getLogger("forager")
_MOST_TOLD = 100  # failures that the log takes; the event log has all
_SLOWEST = 3  # clients of a round that the log names as slow
_LONGEST_REASON = 1000  # characters; a client could fill the log
_EXPIRED = 3  # Flower's code for a message whose time to live is over
_LIVES = 2.0  # times its deadline that a training message lives: what comes in between teaches
_OVERDUE = "overdue"  # in a checkpoint, beside the names of clients


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
    spared: dict[int, int] = field(default_factory=dict)  # bytes that a node was not sent
    resent: int = 0
    # What to send to a node if it does not hold the model that its message went without
    whole: dict[int, Message] = field(default_factory=dict)
    lacking: list[Message] = field(default_factory=list)  # those of them to be sent now
    lost: dict[int, float] = field(default_factory=dict)  # simulated seconds that it took to say so
    together: ReplyStack | None = None  # all replies, where the runtime gave them as one
    seconds: float = 0.0
    simulated: float = 0.0
    started: float = 0.0
    clock: float = 0.0  # when it began, on the clock of the grid
    patience: float = math.inf  # seconds that clients have
    limit: float = math.inf  # simulated seconds that a training may take
    # Replies that take longer, by message: the node, the reply, and its seconds
    slow: dict[str, tuple[int, Message, float]] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)  # seconds of each reply, where known

    def reply_seconds(self) -> ReplySeconds:
        """Return how long a reply took in the middle, and those of the slowest clients.

        >>> Exchange("train", 3, took={"a": 1.0, "b": 2.0, "c": 9.0}).reply_seconds().median
        2.0
        """
        slowest = sorted(self.took, key=lambda client: -self.took[client])[:_SLOWEST]
        return ReplySeconds(
            median=median(self.took.values()),
            slowest={client: self.took[client] for client in slowest},
        )

    def fail(self, client: str, reason: str) -> None:
        """Note a failure; two clients may go by one name."""
        self.errors += 1
        self.failed[client] = reason


class PatientGrid(GridWrapper):
    """A grid that waits no longer than it must.

    Parameters
    ----------
    grid : Grid
        The runtime's grid.
    federation : Federation
        Names for the clients that fail, and where events go.
    deadline : float (default: 600.0)
        Seconds that clients have to answer. A message carries them as its time to live, one of
        training twice that.
    poll : float (default: 0.2)
        Seconds between checks for replies.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        *,
        deadline: float = 600.0,
        poll: float = 0.2,
    ) -> None:
        super().__init__(grid)
        self.federation = federation
        self.deadline = deadline
        federation.times.deadline = deadline
        self.poll = poll
        self.round = 0
        self.last: Exchange | None = None
        self._told: set[tuple[str, str]] = set()  # failures that are in the log already
        self._largest = 0  # bytes of the largest message sent so far
        self._late = LateReplies(federation)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies with content that came in time."""
        return list(self.stream(messages, deadline=timeout))

    def ask(self, messages: Iterable[Message], timeout: float, quorum: float) -> Iterable[Message]:
        """Send questions and return the answers that came in time.

        Once a share of the clients, the quorum, has answered, the others are waited for only as
        long again as that took.
        """
        return list(self.stream(messages, deadline=timeout, quorum=quorum))

    def replies(self, messages: Iterable[Message], *, enough: int | None) -> Iterable[Message]:
        """Return replies with content: as one where the runtime has them so, else as they arrive.

        See :meth:`stream` for the parameters.
        """
        arriving = self.stream(messages, enough=enough, as_one=True)
        first = list(islice(arriving, 1))
        if self.last is None or self.last.together is None:
            return chain(first, arriving)
        together, self.last.together = self.last.together, None
        return together

    def stream(
        self,
        messages: Iterable[Message],
        *,
        deadline: float | None = None,
        enough: int | None = None,
        quorum: float = 1.0,
        as_one: bool = False,
    ) -> Iterator[Message]:
        """Yield replies with content as they arrive.

        Parameters
        ----------
        messages : iterable of Message
            What to send; all of one kind.
        deadline : float, optional
            Seconds to wait, at most the grid's own.
        enough : int, optional
            Replies after which the others need not be waited for; all by default.
        quorum : float (default: 1.0)
            Share of replies after which the others are waited for only as long again.
        as_one : bool (default: False)
            Whether replies that the runtime has as one are left in ``last.together``, not yielded.
        """
        messages = whole_or_list(messages)
        if not messages:
            return
        limit = min(deadline or self.deadline, self.deadline)
        exchange = Exchange(kind_of(messages), len(messages))
        self.last = exchange
        started = exchange.started = time.monotonic()
        exchange.clock, exchange.patience = self._clock(), limit
        devices = getattr(self.grid, "devices", None)
        whole, lives = messages, 1.0
        if exchange.kind == "train":
            exchange.limit = math.inf if devices is None else limit
            lives = _LIVES
        messages, exchange.whole, exchange.spared = in_short(messages, self.federation)
        waiting = self._send(messages, lives * limit, exchange)
        enough = len(messages) if enough is None else enough
        arrived: list[Message] = []
        try:
            while waiting and exchange.received < enough:
                before = len(waiting)
                late = self._late.to_look_for(self._clock())
                pulled = self.pull_messages([*waiting, *late])
                if as_one and self._take_together(pulled, waiting, exchange):
                    break
                arrived = list(pulled)
                for reply in self._take(arrived, waiting, exchange):
                    yield reply
                    # What has arrived is used, but on a simulated clock it has not yet.
                    if devices is not None and exchange.received >= enough:
                        break
                else:
                    arrived = []
                progress = len(waiting) < before
                if exchange.lacking and exchange.received < enough:
                    again, exchange.lacking = exchange.lacking, []
                    exchange.resent += len(again)
                    left = max(lives * limit - (time.monotonic() - started), self.poll)
                    waiting |= self._send(again, left, exchange)
                if progress:
                    if exchange.received >= quorum * len(messages):
                        limit = min(limit, 2 * (time.monotonic() - started) + self.poll)
                        quorum = math.inf  # the limit is set once
                    continue
                if time.monotonic() - started > limit:
                    break
                time.sleep(self.poll)
        finally:
            exchange.late += self.federation.keys(waiting.values())
            if exchange.kind == "train":
                self._give_up(whole, waiting, arrived, exchange)
            exchange.seconds = time.monotonic() - started
            if devices is not None:
                devices.pass_time(exchange.simulated)
            if exchange.kind == "train":
                self._learn_times(exchange, in_vain=exchange.received < enough)
            self._note(exchange)

    def late(self) -> list[LateReply]:
        """Return the training replies of earlier rounds that have come since the last call."""
        devices = getattr(self.grid, "devices", None)
        if devices is not None:
            self._late.arrived(self.round, devices.clock, self._largest)
        elif expected := self._late.to_look_for(self._clock(), again=True):
            for reply in self.pull_messages(expected):
                self._late.answered(reply, self.round, self._clock(), self._largest)
        return self._late.take()

    def _clock(self) -> float:
        """Return the seconds of the clock that replies arrive by."""
        devices = getattr(self.grid, "devices", None)
        return time.monotonic() if devices is None else float(devices.clock)

    def _give_up(
        self,
        sent: Messages,
        waiting: dict[str, int],
        unread: list[Message],
        exchange: Exchange,
    ) -> None:
        """Keep in mind whose replies may still come; on a simulated clock they are known already.

        ``unread`` are those that are there, but that others were faster than.
        """
        if not waiting and not exchange.slow:
            return
        whole = {node_of(message): message for message in sent}
        expires = exchange.clock + _LIVES * exchange.patience
        if not hasattr(self.grid, "durations"):
            given_up = {i: whole[node] for i, node in waiting.items()}
            self._late.give_up(given_up, self.round, exchange.clock, expires)
        elif getattr(self.grid, "devices", None) is not None:
            for reply in unread:
                node = waiting.get(answered_id(reply))
                if node is not None:
                    seconds = self._simulated(reply) + exchange.lost.get(node, 0.0)
                    exchange.slow[answered_id(reply)] = (node, reply, seconds)
            given_up = {i: whole[node] for i, (node, _, _) in exchange.slow.items()}
            coming = {i: (reply, seconds) for i, (_, reply, seconds) in exchange.slow.items()}
            self._late.give_up(given_up, self.round, exchange.clock, expires, coming)
            exchange.slow = {}

    def _learn_times(self, exchange: Exchange, in_vain: bool) -> None:
        """Learn who took how long; a client that never answers costs the whole deadline."""
        times = self.federation.times
        waited = exchange.simulated or exchange.seconds
        for key, seconds in exchange.took.items():
            times.replied(key, seconds, self.round)
        for key in exchange.failed:
            times.failed(key, self.round)
        for key in exchange.late:
            if in_vain:
                self.federation.heard(key, self.round, answered=False)
                times.late(key, waited, self.round)
            else:
                times.cut_off(key, waited)

    def _send(self, messages: Messages, ttl: float, exchange: Exchange) -> dict[str, int]:
        if isinstance(messages, Broadcast):
            messages.expire_after(ttl)
            size = sum(map(record_bytes, entries(messages.content).values()))
            exchange.bytes_down += size * len(messages)
            self._largest = max(self._largest, size)
        else:
            self._measure(messages, ttl, exchange)
        # Flower leaves out the ids of messages that it could not deliver, or gives None for them.
        accepted = {message_id for message_id in self.push_messages(messages) if message_id}
        if isinstance(messages, Broadcast) and messages.whole:
            return dict(zip(messages.ids, messages.nodes, strict=True))
        waiting = {}
        for message in messages:
            message_id = message.metadata.message_id
            if message_id in accepted:
                waiting[message_id] = node_of(message)
            else:
                exchange.fail(self.federation.key(node_of(message)), "not delivered")
        return waiting

    def _measure(self, messages: list[Message], ttl: float, exchange: Exchange) -> None:
        sizes: dict[int, int] = {}
        contents: dict[int, int] = {}
        for message in messages:
            message.metadata.ttl = ttl
            # Strategies share contents, or records, among messages: measure each of them once.
            content = message.content
            size = contents.get(id(content))
            if size is None:
                records = entries(content).values()
                sizes |= {id(r): record_bytes(r) for r in records if id(r) not in sizes}
                size = contents[id(content)] = sum(sizes[id(r)] for r in records)
            exchange.bytes_down += size
            self._largest = max(self._largest, size)

    def _take_together(
        self, arrived: Iterable[Message], waiting: dict[str, int], exchange: Exchange
    ) -> bool:
        """Take all replies as one; False if they must be looked at one by one."""
        if not isinstance(arrived, ReplyStack) or not arrived.whole:
            return False
        total, largest = arrived.sizes()
        known = all(map(self.federation.roster.knows, arrived.nodes))
        if arrived.sent.ids != list(waiting) or not known or largest > most_bytes(self._largest):
            return False
        waiting.clear()
        exchange.bytes_up += total
        exchange.received += len(arrived)
        exchange.together = arrived
        for key in self.federation.keys(arrived.nodes):
            self.federation.heard(key, self.round, answered=True)
        return True

    def _take(
        self, arrived: Iterable[Message], waiting: dict[str, int], exchange: Exchange
    ) -> Iterator[Message]:
        """Yield the good ones; note the others under the client that the message went to.

        A reply to a message that is not waited for any more is a late one; one that is replayed
        answers nothing and is dropped.
        """
        measured = not hasattr(self.grid, "durations")
        most = most_bytes(self._largest)
        key_of, learn, heard = (
            self.federation.key,
            self.federation.roster.learn,
            self.federation.heard,
        )
        for reply in arrived:
            # Errors made by the SuperLink name itself as their source; the message they answer
            # shows whose they are.
            node = waiting.pop(answered_id(reply), None)
            if node is None:
                self._late.answered(reply, self.round, self._clock(), self._largest)
                continue
            seconds = self._simulated(reply) + exchange.lost.get(node, 0.0)
            exchange.simulated = max(exchange.simulated, min(seconds, exchange.limit))
            if seconds > exchange.limit:
                exchange.late.append(key_of(node))
                exchange.slow[answered_id(reply)] = (node, reply, seconds)
                continue
            if reply.has_error():
                if reply.error.code == _EXPIRED:
                    exchange.late.append(key_of(node))
                    continue
                reason = reply.error.reason or f"error {reply.error.code}"
                exchange.fail(key_of(node), shorten(reason, _LONGEST_REASON))
                continue
            size, names = sizes_of(reply.content)
            exchange.bytes_up += size
            if node in exchange.whole and lacks_model(reply):
                self.federation.held.learn([node], "")
                exchange.spared.pop(node, None)
                exchange.lacking.append(exchange.whole.pop(node))
                exchange.lost[node] = seconds
                continue
            if measured:
                seconds = time.monotonic() - exchange.started
            if seconds:  # the local engine answers for all at once, unless its devices are slow
                exchange.took[key_of(node)] = seconds
            learn(reply)
            if size + names > most:
                exchange.fail(key_of(node), too_large(size, most))
                continue
            exchange.received += 1
            heard(key_of(node), self.round, answered=True)
            if exchange.kind in BRING_A_MODEL:
                self.federation.held.confirm(node)
            yield reply

    def _simulated(self, reply: Message) -> float:
        """Return the seconds that an answer took on a simulated clock, if there is one."""
        durations = getattr(self.grid, "durations", None)
        return float(durations.pop(answered_id(reply), 0.0)) if durations else 0.0

    def clients_state(self) -> dict[str, Any]:
        """Return what the runtime keeps for its clients, if it does not outlive the process."""
        if not hasattr(self.grid, "state_dict"):
            return {}
        state = dict(self.grid.state_dict())
        return state | ({_OVERDUE: self._late.state_dict()} if self._late.overdue else {})

    def load_clients_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`clients_state` returned.

        Messages of the rounds after it are forgotten: those rounds did not happen.
        """
        state = dict(state)
        self._late.load_state_dict(state.pop(_OVERDUE, {}))
        if hasattr(self.grid, "load_state_dict"):
            self.grid.load_state_dict(state)

    def _note(self, exchange: Exchange) -> None:
        for client, reason in exchange.failed.items():
            if (client, reason) not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add((client, reason))
                _log.warning("client %s failed at %s: %s", client, exchange.kind, reason[:300])
        took = exchange.reply_seconds() if exchange.took else None
        self.federation.note(
            Exchanged(
                round=self.round,
                kind=exchange.kind,
                sent=exchange.sent,
                received=exchange.received,
                failed=exchange.failed,
                late=exchange.late,
                resent=exchange.resent,
                bytes_spared=sum(exchange.spared.values()),
                bytes_down=exchange.bytes_down,
                bytes_up=exchange.bytes_up,
                seconds=exchange.seconds,
                simulated_seconds=exchange.simulated or None,
                reply_seconds=took,
            )
        )
