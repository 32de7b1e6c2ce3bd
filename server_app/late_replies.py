"""Training replies that come after their round: looked for on the side, and kept until asked for.

Nobody waits for them. Who sent them, how large they are and how long they took is seen to here;
what they say is for the layers (:meth:`strategies.layers.base.Layer.hear_late`).
"""

import math
import time
from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, Message

from ..core.log.events import LateReplied
from ..core.wire.flower_private import message_from_bytes
from ..core.wire.keys import ARRAYS
from ..core.wire.records import answered_id, node_of, record_at, sender_of
from ..core.wire.sizes import record_bytes, sizes_of
from ..strategies.federation.federation import Federation
from ..strategies.federation.late_reply import LateReply
from ..strategies.federation.observations import lacks_model
from .overdue import Overdue, OverdueMessages

_LOOK_AGAIN = 1.0  # seconds between two looks while others are waited for
_MOST_BYTES = 2**28  # of replies that are kept until the next round begins
# A reply may be this many times as large as the largest message sent so far (which held a model),
# and some more: no method answers a model with more than a few arrays of its size.
_TIMES, _AND_MORE = 4, 2**20


def most_bytes(largest: int) -> int:
    """Return the size above which a reply is not read, given that of the largest message sent."""
    return _TIMES * largest + _AND_MORE


def too_large(size: int, most: int) -> str:
    """Return why a reply is not read."""
    return f"a reply of {size:,} bytes: more than {most:,} is not read"


class LateReplies:
    """What is known of messages that were given up, and the replies to them that came.

    Parameters
    ----------
    federation : Federation
        Names of the clients, what they take, and where events go.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.overdue = OverdueMessages()
        self._came: list[LateReply] = []
        self._bytes = 0
        self._looked = -math.inf

    def give_up(
        self,
        messages: Mapping[str, Message],
        server_round: int,
        sent: float,
        expires: float,
        replies: Mapping[str, tuple[Message, float]] | None = None,
    ) -> None:
        """Keep in mind messages that are not waited for any more.

        Parameters
        ----------
        messages : mapping of str to Message
            By their ids: what was sent, whole.
        server_round : int
            Their round.
        sent, expires : float
            When they were sent and until when a reply is possible, by the clock of the grid.
        replies : mapping, optional
            On a simulated clock, by message: the reply that will arrive, and its seconds.
        """
        known: dict[str, Overdue] = {}
        for message_id, message in messages.items():
            node = node_of(message)
            cohort = self.federation.cohort_of(node)
            model = record_at(message.content, ARRAYS, ArrayRecord)
            asked = Overdue(node, server_round, cohort, sent, expires, model)
            if replies is None:
                known[message_id] = asked
            elif _was_trained(replies[message_id][0]):
                known[message_id] = asked.arriving(*replies[message_id])
        self.overdue.add(known)

    def to_look_for(self, clock: float, *, again: bool = False) -> list[str]:
        """Return the messages to look for now: all of them, but not at every poll."""
        now = time.monotonic()
        if not len(self.overdue) or (now - self._looked < _LOOK_AGAIN and not again):
            return []
        self._looked = now
        return self.overdue.expected(clock)

    def answered(self, reply: Message, server_round: int, clock: float, largest: int) -> None:
        """Take in a reply that is not waited for; one that answers nothing is dropped."""
        asked = self.overdue.taken(answered_id(reply))
        if asked is None or not _was_trained(reply):
            return
        if sender_of(reply) != asked.node:
            reason = f"a late reply of round {asked.round} to what another client was asked"
            self.federation.set_aside(server_round, sender_of(reply), reason)
            return
        self._hear(asked, reply, clock - asked.sent, server_round, largest)

    def arrived(self, server_round: int, clock: float, largest: int) -> None:
        """Take in what has arrived on a simulated clock."""
        for asked in self.overdue.arrived(clock):
            assert asked.arrives is not None
            reply = message_from_bytes(asked.reply) if asked.reply else None
            self._hear(asked, reply, asked.arrives - asked.sent, server_round, largest)

    def _hear(
        self, asked: Overdue, reply: Message | None, seconds: float, now: int, largest: int
    ) -> None:
        """Learn how long a reply took, and keep it for those who learn from what it says."""
        size = 0
        if reply is not None:
            self.federation.roster.learn(reply)
            size, names = sizes_of(reply.content)
            # A resumed run may have sent nothing yet.
            model = 0 if asked.model is None else record_bytes(asked.model)
            most = most_bytes(max(largest, model))
            if size + names > most:
                self.federation.set_aside(now, asked.node, too_large(size, most))
                return
        key = self.federation.key(asked.node)
        self.federation.heard(key, now, answered=True)
        self.federation.held.confirm(asked.node)
        self.federation.times.came_late(key, seconds, asked.round)
        self.federation.note(
            LateReplied(
                round=now,
                cohort=asked.cohort,
                client=key,
                asked_in=asked.round,
                seconds=seconds,
                bytes_up=size,
            )
        )
        if reply is not None and asked.model is not None:
            self._bytes += size
            if self._bytes <= _MOST_BYTES:
                self._came.append(LateReply(reply, asked.round, now, asked.model, asked.cohort))

    def take(self) -> list[LateReply]:
        """Return the replies that came since the last call."""
        came, self._came, self._bytes = self._came, [], 0
        return came

    def state_dict(self) -> dict[str, Any]:
        """Return what is on its way on a simulated clock."""
        return self.overdue.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned; all else is forgotten."""
        self.overdue.load_state_dict(state)
        self.take()


def _was_trained(reply: Message) -> bool:
    """Return whether a reply is one to training: no error, and no lack of the model."""
    return not reply.has_error() and not lacks_model(reply)
