"""A grid on which training goes on between rounds: a round takes the first k replies there are."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import Message

from .patient_grid import Exchange, PatientGrid
from .short_messages import in_short


class BufferedGrid(PatientGrid):
    """Waits for k training replies, of this round's messages or of earlier ones.

    Clients that still train are busy: the federation leaves them out of all else. Everything but
    training works as on a patient grid.

    Parameters
    ----------
    *args, **settings
        Those of :class:`PatientGrid`.
    buffer : int
        How many replies end a round (k).
    """

    def __init__(self, *args: Any, buffer: int, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.buffer = buffer
        self._out: dict[str, int] = {}  # whose replies are awaited, by message
        self._expires: dict[str, float] = {}
        self._arriving: list[tuple[float, Message]] = []  # on a simulated clock, the next first
        self._whole: dict[int, Message] = {}  # for those that may lack the model of a short message

    def stream(
        self,
        messages: Iterable[Message],
        *,
        deadline: float | None = None,
        enough: int | None = None,
        quorum: float = 1.0,
        as_one: bool = False,
    ) -> Iterator[Message]:
        """Yield replies as they arrive; of training messages, k of all that are awaited."""
        messages = list(messages)
        training = bool(messages) and messages[0].metadata.message_type == "train"
        if messages and not training:
            yield from super().stream(messages, deadline=deadline, enough=enough, quorum=quorum)
            return
        exchange = Exchange("train", len(messages))
        self.last = exchange
        started = exchange.started = time.monotonic()
        exchange.whole, new = self._whole, dict[str, int]()
        if messages:
            short, whole, exchange.spared = in_short(messages, self.federation)
            self._whole |= whole
            new |= self._send_out(list(short), exchange)
        try:
            while self._out and exchange.received < self.buffer:
                before = len(self._out)
                for reply in self._take(self._arrived(new), self._out, exchange):
                    yield reply
                    if exchange.received >= self.buffer:
                        break
                if exchange.lacking:  # even if the round is over: they train for the next one
                    again, exchange.lacking = exchange.lacking, []
                    exchange.resent += len(again)
                    new |= self._send_out(again, exchange)
                self._drop_late(exchange)
                if len(self._out) == before and not self._arriving:
                    time.sleep(self.poll)
        finally:
            exchange.seconds = time.monotonic() - started
            self.federation.busy = set(self._out.values())
            self._expires = {i: when for i, when in self._expires.items() if i in self._out}
            still = self.federation.busy
            self._whole = {node: m for node, m in self._whole.items() if node in still}
            self._note(exchange)

    def _send_out(self, messages: list[Message], exchange: Exchange) -> dict[str, int]:
        """Send training messages, whose replies are awaited from now on."""
        new = self._send(messages, self.deadline, exchange)
        self._out |= new
        self._expires |= dict.fromkeys(new, time.monotonic() + self.deadline)
        return new

    def _arrived(self, new: dict[str, int]) -> Iterable[Message]:
        """Return the replies that are there now; on a simulated clock, the next one."""
        devices = getattr(self.grid, "devices", None)
        if devices is None:
            # What is not taken now stays with the runtime until it is asked for.
            for message_id in list(self._out):
                yield from self.pull_messages([message_id])
            return
        unanswered = [message_id for message_id in new if message_id in self._out]
        while unanswered:  # a client trains on what it was sent, whenever its answer arrives
            replies = list(self.pull_messages(unanswered))
            if not replies:
                break
            for reply in replies:
                took = self._simulated(reply)
                self._arriving.append((devices.clock + took, reply))
            answered = {reply.metadata.reply_to_message_id for reply in replies}
            unanswered = [i for i in unanswered if i not in answered]
        new.clear()
        self._arriving.sort(key=lambda arrival: arrival[0])
        if self._arriving:  # one at a time: it may lead to another message
            when, reply = self._arriving.pop(0)
            passed = max(0.0, when - devices.clock)
            devices.pass_time(passed)
            assert self.last is not None
            self.last.simulated += passed
            yield reply

    def _drop_late(self, exchange: Exchange) -> None:
        """Give up those that have had their time, on a clock that runs by itself."""
        if getattr(self.grid, "devices", None) is not None:
            return
        now = time.monotonic()
        for message_id in [i for i in self._out if now > self._expires.get(i, now)]:
            key = self.federation.key(self._out.pop(message_id))
            exchange.late.append(key)
            self.federation.heard(key, self.round, answered=False)
