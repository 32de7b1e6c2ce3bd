"""One batch of messages: its short form, what comes of it, and replies after their round."""

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord

from ..core.log.events import Exchanged, LateReplied, ReplySeconds
from ..core.wire.arrays import from_record, record_bytes
from ..core.wire.changes import BASE, CHANGE, LACKS_BASE, TAG, encode_shortest, tag_of
from ..core.wire.keys import ARRAYS, CONFIG
from ..core.wire.records import entries, filled
from ..core.wire.replies import Replies
from ..core.wire.requests import Requests
from ..strategies.federation.clock import Clock
from ..strategies.federation.federation import Federation
from ..strategies.federation.ledger import HeldModels

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
                    "%d rounds waited for client %s, %.0f s in the last one, where half of the "
                    "clients needed %.0f s; round.over-commit = 0.1 does not wait for it",
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


BRING_A_MODEL = ("train", "evaluate")  # kinds of messages
_WORTH_IT = 0.9  # share of the model's bytes that a change may have


class ShortForm:
    """What to send in place of requests, and what to those that lack what it builds on."""

    def __init__(self, requests: Requests, federation: Federation) -> None:
        self.short = self.whole = requests  # without models that clients hold, and with all
        self.spared: dict[int, int] = {}  # bytes that a node is not sent, if its message is short
        self.tags = [""] * len(requests)  # what clients call models that they keep, else empty
        held, kind = federation.held, requests.kind
        kept = held.every_message and kind in BRING_A_MODEL
        if kept or (kind == "train" and held.anybody()):
            self._shorten(requests, held)

    def _shorten(self, requests: Requests, held: HeldModels) -> None:
        forms = _Forms(held)
        models, configs = list(requests.column(ARRAYS)), list(requests.column(CONFIG))
        short_models, short_configs = list(models), list(configs)
        for row, node in enumerate(requests.nodes):
            model, config, base = models[row], configs[row], held.of(node)
            if model is None or config is None or not (base or held.every_message):
                continue
            tag, said = forms.tag(model), forms.in_place_of(model, base)
            if held.every_message:
                configs[row] = short_configs[row] = forms.config(config, {TAG: tag})
                self.tags[row] = tag
            if said is not None:
                short_models[row], short_configs[row] = None, forms.config(config, said)
                self.spared[node] = record_bytes(model) - sum(map(len, said.get(CHANGE, ())))
        forms.keep_models()
        everyone = range(len(requests))
        self.short, self.whole = requests.select(everyone), requests.select(everyone)
        self.whole.put_column(CONFIG, configs)
        self.short.put_column(CONFIG, short_configs)
        self.short.put_column(ARRAYS, short_models)

    def whole_for(self, nodes: set[int]) -> Requests:
        """Return the whole messages to some nodes."""
        rows = [row for row, node in enumerate(self.whole.nodes) if node in nodes]
        return self.whole.select(rows)


class _Forms:
    """What the messages of one sending say of their models, each found once."""

    def __init__(self, held: HeldModels) -> None:
        self._held = held
        self._models: dict[int, tuple[str, ArrayRecord]] = {}  # most messages share a record
        self._said: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._configs: dict[tuple[int, str, str], ConfigRecord] = {}

    def tag(self, model: ArrayRecord) -> str:
        """Return what a model is called."""
        if id(model) not in self._models:
            self._models[id(model)] = tag_of(from_record(model)), model
        return self._models[id(model)][0]

    def in_place_of(self, model: ArrayRecord, base: str) -> dict[str, Any] | None:
        """Return what a client that holds another model is told; None if it must be sent this."""
        tag = self.tag(model)
        if base == tag:
            return {TAG: tag}
        if base not in self._held.models:
            return None
        if (base, tag) not in self._said:
            change = encode_shortest(self._held.models[base], from_record(model))
            short = change and sum(map(len, change)) <= _WORTH_IT * record_bytes(model)
            self._said[base, tag] = {TAG: tag, BASE: base, CHANGE: change} if short else None
        return self._said[base, tag]

    def config(self, config: ConfigRecord, said: dict[str, Any]) -> ConfigRecord:
        """Return a config that also says this; the same one for all messages that share it."""
        form = id(config), said[TAG], said.get(BASE, "")
        if form not in self._configs:
            self._configs[form] = filled(ConfigRecord, {**entries(config), **said})
        return self._configs[form]

    def keep_models(self) -> None:
        """Keep the models for later changes, if clients keep them too."""
        if self._held.every_message:
            for tag, model in self._models.values():
                self._held.keep(tag, from_record(model))
