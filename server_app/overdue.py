"""Messages that nobody waits for any more, but whose replies may still come.

Flower hands replies out by the id of the message that they answer, for as long as the message
lives. So ids are kept: at most a number of them, each until its time is over, and none of an
earlier process or of rounds that were undone. On a simulated clock the reply is known already and
kept until its time has come.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message

from ..core.wire.arrays import from_record, to_record
from ..core.wire.flower_private import message_to_bytes
from ..core.wire.sizes import record_bytes

_MOST = 1000  # messages
_MOST_BYTES = 2**28  # of models and of replies that are kept for them


@dataclass
class Overdue:
    """A training message without a reply.

    Attributes
    ----------
    node : int
        Who was asked.
    round : int
        For which round.
    cohort : str or None
        For which cohort.
    sent : float
        When, in seconds of the clock.
    expires : float
        Until when a reply is possible.
    model : ArrayRecord or None
        What it was sent; none if too much is kept already, and then only the time is learned.
    arrives : float or None
        When its reply arrives, on a simulated clock.
    reply : bytes
        That reply; empty if too much is kept already.
    """

    node: int
    round: int
    cohort: str | None
    sent: float
    expires: float
    model: ArrayRecord | None = None
    arrives: float | None = None
    reply: bytes = b""

    def arriving(self, reply: Message, seconds: float) -> "Overdue":
        """Return the same with a reply that arrives this many seconds after the message."""
        return replace(self, arrives=self.sent + seconds, reply=message_to_bytes(reply))


class OverdueMessages:
    """The overdue messages of a run by their ids, the oldest first.

    Parameters
    ----------
    most : int
        The oldest of more than that are forgotten.
    most_bytes : int
        Models and replies of the oldest are given up once they take more than that.
    """

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self._known: dict[str, Overdue] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, messages: Mapping[str, Overdue]) -> None:
        """Keep messages that nobody waits for from now on."""
        self._known |= {
            message_id: message
            for message_id, message in messages.items()
            if message.arrives is None or message.arrives <= message.expires
        }
        for oldest in list(self._known)[: max(0, len(self._known) - self.most)]:
            del self._known[oldest]
        self._make_room()

    def _make_room(self) -> None:
        """Give up models and replies, the oldest first, until the others fit."""
        models = [m.model for m in self._known.values() if m.model is not None]
        users = Counter(map(id, models))  # many messages share one model
        sizes = {id(model): record_bytes(model) for model in models}
        used = sum(sizes.values()) + sum(len(m.reply) for m in self._known.values())
        for message in self._known.values():
            if used <= self.most_bytes:
                return
            if message.model is not None:
                users[id(message.model)] -= 1
                used -= 0 if users[id(message.model)] else sizes[id(message.model)]
            used -= len(message.reply)
            message.model, message.reply = None, b""

    def expected(self, now: float) -> list[str]:
        """Return the messages whose replies the runtime may have; forget those that expired."""
        self._known = {
            message_id: message
            for message_id, message in self._known.items()
            if message.arrives is not None or now <= message.expires
        }
        return [i for i, message in self._known.items() if message.arrives is None]

    def arrived(self, now: float) -> list[Overdue]:
        """Return what has arrived on a simulated clock by now, in that order, and forget it."""
        here = {i: m for i, m in self._known.items() if m.arrives is not None and m.arrives <= now}
        for message_id in here:
            del self._known[message_id]
        return sorted(here.values(), key=lambda message: message.arrives or 0.0)

    def taken(self, message_id: str) -> Overdue | None:
        """Return the message of an id, and forget it; None if there is none."""
        return self._known.pop(message_id, None)

    def state_dict(self) -> dict[str, Any]:
        """Return what is on its way on a simulated clock; a runtime's ids end with its process."""
        coming = [message for message in self._known.values() if message.arrives is not None]
        models = {id(m.model): m.model for m in coming if m.model is not None}
        places = {model: place for place, model in enumerate(models)}
        return {
            "models": [from_record(model) for model in models.values()],
            "messages": [
                {
                    **vars(message),
                    "model": places.get(id(message.model), -1),
                    "reply": np.frombuffer(message.reply, dtype=np.uint8),
                }
                for message in coming
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned, in place of all that is known."""
        models: dict[int, ArrayRecord | None] = {
            place: to_record(arrays) for place, arrays in enumerate(state.get("models", []))
        }
        self._known = {
            # The engine of a resumed run counts its own messages from one again.
            f"earlier-{place}": Overdue(
                **{**kept, "model": models.get(kept["model"]), "reply": kept["reply"].tobytes()}
            )
            for place, kept in enumerate(state.get("messages", []))
        }
