"""Sending messages and waiting for replies: deadlines, accounting, a name for every failure.

Flower's ``send_and_receive`` polls every three seconds in deployment, waits for the last client,
and does not say whose reply is missing. Training replies that come after their round are taken in
on the side; with a buffer, others than the first k stay open instead and count in a later round.
"""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from ..core.log.event import shorten
from ..core.log.events import Quarantined
from ..core.wire.changes import LACKS_BASE
from ..core.wire.delivery import Delivery
from ..core.wire.records import answered_id, sender_of
from ..core.wire.replies import Replies, ReplyStream
from ..core.wire.requests import Requests
from ..strategies.federation.clock import ClockedGrid, clock_of
from ..strategies.federation.federation import Federation
from ..strategies.federation.grids import GridWrapper
from ..strategies.federation.ledger import Assignment
from .exchange import Exchange, LateReplies, Lessons, ShortForm, most_bytes, too_large

_LONGEST_REASON = 1000  # characters; a client could fill the log
_SUPERLINK = 1  # the node id that its own errors come from, which no reply of a node can have
_EXPIRED = 3  # Flower's code for a message whose time to live is over
_LIVES = 2.0  # times its deadline that a training message lives: what comes in between teaches
_LEDGER = "ledger"  # in a checkpoint, beside the names of clients


class Post(GridWrapper):
    """A grid that waits no longer than it must.

    A message carries the deadline as its time to live, one of training twice that. With a buffer,
    as many training replies end a round, of its own messages or of earlier ones.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        *,
        deadline: float = 600.0,
        learns_deadline: bool = False,
        poll: float = 0.2,
        buffer: int = 0,
    ) -> None:
        super().__init__(grid)
        self.federation = federation
        self.ledger = federation.ledger
        self.clock = clock_of(grid, poll)
        self.deadline = deadline
        federation.times.longest = deadline
        federation.times.learns_deadline = learns_deadline
        self.buffer = buffer
        self.round = 0
        self.last: Exchange | None = None
        self._lessons = Lessons(federation)
        self._late = LateReplies(federation, self.clock)
        self._largest = 0  # bytes of the largest message sent so far
        self._forms: list[ShortForm] = []  # that an open message may be resent from
        self._lacking: list[Assignment] = []  # that are to be sent again, whole

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies with content that came in time."""
        requests = Requests.of(messages)
        return ReplyStream(list(self.exchange(requests, deadline=timeout)))

    def ask(self, requests: Requests, timeout: float, quorum: float) -> Iterable[Message]:
        """Return the answers in time; after a quorum, others are waited for only as long again."""
        return ReplyStream(list(self.exchange(requests, deadline=timeout, quorum=quorum)))

    def exchange(
        self,
        requests: Requests | None,
        *,
        deadline: float | None = None,
        enough: int | None = None,
        quorum: float = 1.0,
    ) -> Iterator[Replies]:
        """Yield replies with content as they arrive; without requests, those that are open already.

        After ``enough``, others are not waited for; after a ``quorum``, only as long again.
        """
        buffered = self.buffer > 0 and (requests is None or requests.kind == "train")
        if requests is None and not buffered:
            return
        kind = "train" if requests is None else requests.kind
        exchange = self.last = Exchange(kind, 0 if requests is None else len(requests))
        limit = min(deadline or self.deadline, self.deadline)
        if kind == "train":
            limit = exchange.limit = min(limit, self.federation.times.deadline())
        began, started = self.clock.now(), time.monotonic()
        waiting = set(self.ledger.awaited("train")) if buffered else set[str]()
        if requests is not None:
            lives = _LIVES * limit if kind == "train" and not buffered else limit
            form = ShortForm(requests, self.federation)
            exchange.spared = form.spared
            self._forms = [*self._needed_forms(), form] if buffered else [form]
            waiting |= self._send(form.short, exchange, lives, form.tags)
        enough = self.buffer if buffered else exchange.sent if enough is None else enough
        try:
            while waiting and exchange.received < enough:
                before = len(waiting)
                for table in self._arrived(waiting, exchange, one_by_one=buffered):
                    yield table
                    if buffered and exchange.received >= enough:
                        break
                waiting |= self._resend(exchange, limit)
                if buffered:
                    waiting -= self._drop_overdue(exchange)
                if len(waiting) < before:
                    if exchange.received >= quorum * exchange.sent:
                        limit = min(limit, 2 * (self.clock.now() - began) + self.clock.poll)
                        quorum = math.inf  # the limit is set once
                    continue
                left = began + limit - self.clock.now()
                if left <= 0 and not buffered:
                    break
                self.clock.wait(self.deadline if buffered else left)
        finally:
            if not buffered:
                given_up = self.ledger.give_up(waiting)
                exchange.late += self.federation.keys(each.node for each in given_up)
            self._forms, self._lacking = self._forms if waiting and buffered else [], []
            waited = self.clock.now() - began
            if kind == "train" and not buffered:
                in_vain = exchange.received < enough
                self._lessons.learn_times(exchange, self.round, waited, in_vain=in_vain)
                if enough == exchange.sent:
                    self._lessons.advise(exchange)
            elif kind == "evaluate":
                for key in exchange.late:
                    self.federation.heard(key, self.round, answered=False)
            seconds, simulated = time.monotonic() - started, self.clock.simulated_since(began)
            self._lessons.note(exchange, self.round, seconds, simulated)

    def late(self) -> list[Replies]:
        """Return the training replies of earlier rounds that have come since the last call."""
        expected = self._late.expected(again=True)
        if expected:
            exchange = Exchange("train", 0)
            for _ in self._taken(Delivery.of(self.pull_messages(expected)), set(), exchange):
                pass  # none of them is waited for
            self.ledger.forget_expired(self.clock.now())
        return self._late.collected()

    def _send(
        self, requests: Requests, exchange: Exchange, ttl: float, tags: list[str]
    ) -> set[str]:
        """Send messages, note those that were not delivered, and return the others."""
        requests.expire_after(ttl)
        if requests.nonces:  # of whoever looked at the messages; others get theirs when made
            requests.sign()
        sizes = requests.row_bytes()
        exchange.bytes_down += sum(sizes)
        self._largest = max(self._largest, *sizes)
        # Flower leaves out the ids of messages that it could not deliver, or gives None for them.
        accepted = {message_id for message_id in self.push_messages(requests) if message_id}
        if not requests.ids:
            requests.ids = [message.metadata.message_id for message in requests]
        requests.ids = [each if each in accepted else "" for each in requests.ids]
        for message_id, node in zip(requests.ids, requests.nodes, strict=True):
            if not message_id:
                exchange.fail(self.federation.key(node), "not delivered")
        now = self.clock.now()
        opened = self.ledger.open(requests, self.round, now, now + ttl)
        held = self.federation.held
        for message_id, node, tag in zip(requests.ids, requests.nodes, tags, strict=True):
            if tag and message_id in opened:
                opened[message_id].tag = tag
                held.sent(node, tag)
        return set(opened)

    def _arrived(
        self, waiting: set[str], exchange: Exchange, *, one_by_one: bool
    ) -> Iterator[Replies]:
        """Yield what has arrived; one by one, the rest stays with the runtime."""
        late = self._late.expected()
        ids = [i for i in self.ledger.awaited(exchange.kind) if i in waiting]
        for some in [[i] for i in ids] if one_by_one else [[*ids, *late]]:
            yield from self._taken(Delivery.of(self.pull_messages(some)), waiting, exchange)

    def _taken(self, arrived: Delivery, waiting: set[str], exchange: Exchange) -> Iterator[Replies]:
        """Yield good rows and note the others; late replies teach, replayed ones are dropped."""
        for error in arrived.errors:
            self._failed(error, waiting, exchange)
        for table in arrived.tables:
            rows, late, assigned = [], [], []
            for row, (message_id, sender) in enumerate(zip(table.asked, table.nodes, strict=True)):
                assignment = self.ledger.peek(message_id)
                if assignment is None:
                    continue
                nonce = table.nonces[row] if table.nonces else assignment.nonce
                if self._is_forged(sender, nonce, assignment):
                    continue
                if message_id in waiting:
                    rows.append(row)
                    assigned.append(assignment)
                    waiting.discard(message_id)
                elif self.ledger.is_late(message_id):
                    late.append(row)
            for row in late:
                self._late.take(table.select([row]), self.round, self._largest)
            if rows:
                mine = table.select(rows)
                mine.assignments = assigned
                good = self._good(mine, exchange)
                if len(good):
                    yield good

    def _is_forged(self, sender: int, nonce: str, assignment: Assignment) -> bool:
        """Return whether another node answers than was asked; nobody can say who, or is blamed."""
        if sender != assignment.node:
            reason = f"a reply of round {assignment.round} to another client's request"
        elif nonce == assignment.nonce or not assignment.nonce:
            return False
        else:
            reason = (
                f"a reply of round {assignment.round} in the name of "
                f"{self.federation.key(assignment.node)}, without the random number of its message"
            )
        self.federation.note(Quarantined(round=self.round, reason=reason))
        return True

    def _failed(self, reply: Message, waiting: set[str], exchange: Exchange) -> None:
        """Note an error; one of the SuperLink's names itself as its source, not the client."""
        message_id, sender = answered_id(reply), sender_of(reply)
        assignment = self.ledger.peek(message_id)
        if assignment is None:
            return
        if sender != _SUPERLINK and self._is_forged(sender, reply.metadata.group_id, assignment):
            return
        self.ledger.answered(message_id)
        if message_id not in waiting:
            return
        waiting.discard(assignment.id)
        key = self.federation.key(assignment.node)
        if reply.error.code == _EXPIRED:
            exchange.late.append(key)
        else:
            reason = reply.error.reason or f"error {reply.error.code}"
            exchange.fail(key, shorten(reason, _LONGEST_REASON))

    def _good(self, table: Replies, exchange: Exchange) -> Replies:
        """Return the rows that are no refusal and not too large; learn from all."""
        now, federation = self.clock.now(), self.federation
        sizes, names = table.row_bytes(), table.name_bytes()
        exchange.bytes_up += sum(sizes)
        most = most_bytes(self._largest)
        lacks = table.metrics.get(LACKS_BASE)
        bad: list[int] = []
        federation.roster.meet(table)
        keys = federation.keys(table.nodes)
        for row, assignment in enumerate(table.assignments):
            if lacks is not None and lacks[row] is not None and self._lacks(assignment):
                bad.append(row)
                continue
            self.ledger.answered(assignment.id)
            assignment.bytes_up = sizes[row]
            if now > assignment.sent:
                exchange.took[keys[row]] = now - assignment.sent
            if sizes[row] + names > most:
                exchange.fail(keys[row], too_large(sizes[row], most))
                bad.append(row)
                continue
            exchange.received += 1
            federation.heard(keys[row], self.round, answered=True)
            if assignment.tag:
                federation.held.learn([assignment.node], assignment.tag)
        return table.without(bad)

    def _lacks(self, assignment: Assignment) -> bool:
        """Return whether a client is to be sent its message again, with the model in it."""
        node = assignment.node
        if not any(node in form.spared for form in self._forms):
            return False
        self.ledger.answered(assignment.id)
        self.federation.held.learn([node], "")
        self._lacking.append(assignment)
        return True

    def _resend(self, exchange: Exchange, limit: float) -> set[str]:
        """Send whole messages to those that lacked the model that theirs built on."""
        lacking, self._lacking = self._lacking, []
        again: set[str] = set()
        for form in self._forms if lacking else ():
            nodes = {each.node for each in lacking if each.node in form.spared}
            if nodes:
                for node in nodes:
                    del form.spared[node]
                whole = form.whole_for(nodes)
                exchange.resent += len(nodes)
                tags = [t for t, n in zip(form.tags, form.whole.nodes, strict=True) if n in nodes]
                again |= self._send(whole, exchange, limit, tags)
        return again

    def _needed_forms(self) -> list[ShortForm]:
        """Return the forms that clients which still train may be resent a message from."""
        busy = self.ledger.busy
        for form in self._forms:
            form.spared = {node: size for node, size in form.spared.items() if node in busy}
        return [form for form in self._forms if form.spared]

    def _drop_overdue(self, exchange: Exchange) -> set[str]:
        overdue = self.ledger.overdue("train", self.clock.now())
        for assignment in self.ledger.give_up(overdue):
            key = self.federation.key(assignment.node)
            exchange.late.append(key)
            self.federation.heard(key, self.round, answered=False)
        return set(overdue)

    def clients_state(self) -> dict[str, Any]:
        """Return what the runtime keeps for its clients, if it does not outlive the process."""
        if not isinstance(self.grid, ClockedGrid):
            return {}
        return {**self.grid.state_dict(), _LEDGER: self.ledger.state_dict()}

    def load_clients_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`clients_state` returned; messages of later rounds are forgotten."""
        state = dict(state)
        self.ledger.load_state_dict(state.pop(_LEDGER, {}))
        self._late.collected()
        self._forms = []
        if isinstance(self.grid, ClockedGrid):
            self.grid.load_state_dict(state)
