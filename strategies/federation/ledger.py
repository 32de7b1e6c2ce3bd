"""The assignments of clients: all messages in flight, and the models that clients hold.

An :class:`Assignment` is what a client was asked to do. Who is busy, late, expected, or was sent
which model are questions to the :class:`Ledger`, which is part of a checkpoint.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ...core.wire.arrays import from_record, record_bytes, to_record
from ...core.wire.keys import ARRAYS
from ...core.wire.replies import Replies
from ...core.wire.requests import Requests

_MOST_LATE = 1000  # assignments that are kept in mind though nobody waits for their replies
_MOST_BYTES = 2**28  # of models that are kept for them


@dataclass(slots=True)
class Assignment:
    """What a client was asked to do."""

    node: int  # who was asked
    kind: str  # to do what: the kind of message
    round: int
    cohort: str | None = None  # for which cohort, if there are any
    # The model that it was sent; none with a question, or if too much is kept for late replies.
    model: ArrayRecord | None = None
    tag: str = ""  # what that model is called by a client that keeps it; empty if it need not
    id: str = ""  # of the message, once it was sent
    sent: float = 0.0  # when, by the clock that replies arrive by
    expires: float = 0.0  # until when a reply is possible
    bytes_up: int = 0  # of its reply, as it arrived
    read: bool = False  # whether its reply has been read: there is no second one
    nonce: str = ""  # the random number that a true reply carries; empty if nobody can tell


class Ledger:
    """The assignments of a run: open ones, whose replies are awaited, and late ones.

    How many late ones are kept in mind is bounded, and so are the bytes of their models.
    """

    def __init__(self, most_late: int = _MOST_LATE, most_bytes: int = _MOST_BYTES) -> None:
        self.most_late = most_late
        self.most_bytes = most_bytes
        self._occasion = ("", 0)
        self._last: dict[int, Assignment] = {}  # the last of each node that brought a model
        self._open: dict[str, Assignment] = {}
        self._late: dict[str, Assignment] = {}  # the oldest first

    @property
    def busy(self) -> set[int]:
        """The nodes that train, or still train for an earlier round."""
        return {each.node for each in self._open.values() if each.kind == "train"}

    def assign(self, requests: Requests, server_round: int, cohort: str | None = None) -> None:
        """Keep what every client is to be asked, and the model that it is to be sent.

        What was asked on another occasion, of another kind or in another round, is forgotten,
        unless its client still trains.
        """
        kind = requests.kind
        if self._occasion != (kind, server_round):
            self._occasion, busy = (kind, server_round), self.busy
            self._last = {node: each for node, each in self._last.items() if node in busy}
        for node, model in zip(requests.nodes, requests.column(ARRAYS), strict=True):
            self._last[node] = Assignment(node, kind, server_round, cohort, model)

    def open(
        self, requests: Requests, server_round: int, now: float, expires: float
    ) -> dict[str, Assignment]:
        """Await replies to what has been sent; rows without an id were not delivered."""
        opened, kind, last = {}, requests.kind, self._last
        assigned = self._occasion == (kind, server_round)
        nonces = requests.nonces or [""] * len(requests)
        rows = zip(requests.ids, requests.nodes, requests.column(ARRAYS), nonces, strict=True)
        for message_id, node, model, nonce in rows:
            if message_id:
                known = last.get(node) if assigned else None
                if known is None or known.read or (known.kind, known.round) != self._occasion:
                    known = Assignment(node, kind, server_round, None, model)
                known.id, known.sent, known.expires = message_id, now, expires
                known.nonce = nonce
                opened[message_id] = known
        self._open |= opened
        return opened

    def of_node(self, node: int) -> Assignment | None:
        """Return what a client was asked last."""
        return self._last.get(node)

    def newest(self, node: int) -> Assignment | None:
        """Return the newest message to a client that is still under way."""
        under_way = [*self._late.values(), *self._open.values()]
        return next((each for each in reversed(under_way) if each.node == node), None)

    def of(self, replies: Replies) -> "Sequence[Assignment | None]":
        """Return what each row answers; None for one that nobody asked."""
        if replies.assignments:
            return replies.assignments
        return [self._last.get(node) for node in replies.nodes]

    def awaited(self, kind: str) -> list[str]:
        """Return the messages of a kind whose replies are awaited."""
        return [message_id for message_id, each in self._open.items() if each.kind == kind]

    def overdue(self, kind: str, now: float) -> list[str]:
        """Return the awaited messages of a kind that no reply is possible to any more."""
        return [i for i, each in self._open.items() if each.kind == kind and now > each.expires]

    def peek(self, message_id: str) -> Assignment | None:
        """Return an assignment whose reply is awaited, or may still come."""
        return self._open.get(message_id) or self._late.get(message_id)

    def is_late(self, message_id: str) -> bool:
        """Return whether nobody waits for the reply to a message any more."""
        return message_id in self._late

    def answered(self, message_id: str) -> Assignment | None:
        """Return the assignment that a reply answers, and close it; None if there is none."""
        found = self._open.pop(message_id, None)
        return self._late.pop(message_id, None) if found is None else found

    def give_up(self, message_ids: Iterable[str]) -> list[Assignment]:
        """Await some replies no more; those to training are kept in mind, as they may still come.

        The oldest are forgotten when there are too many, and models when they take too much.
        """
        named = set(message_ids)  # whose order depends on the process
        given_up = [self._open.pop(each) for each in list(self._open) if each in named]
        self._late |= {each.id: each for each in given_up if each.kind == "train"}
        for oldest in list(self._late)[: max(0, len(self._late) - self.most_late)]:
            del self._late[oldest]
        self._make_room()
        return given_up

    def _make_room(self) -> None:
        models = [each.model for each in self._late.values() if each.model is not None]
        users = Counter(map(id, models))  # many assignments share one model
        sizes = {id(model): record_bytes(model) for model in models}
        used = sum(sizes.values())
        for each in self._late.values():
            if used <= self.most_bytes:
                return
            if each.model is not None:
                users[id(each.model)] -= 1
                used -= 0 if users[id(each.model)] else sizes[id(each.model)]
                each.model = None

    def expected(self) -> list[str]:
        """Return the late messages whose replies may still come."""
        return list(self._late)

    def forget_expired(self, now: float) -> None:
        """Forget the late messages that no reply is possible to any more."""
        self._late = {i: each for i, each in self._late.items() if now <= each.expires}

    def state_dict(self) -> dict[str, Any]:
        """Return what is under way, for a runtime whose messages outlive the process."""
        under_way = [*self._open.values(), *self._late.values()]
        models = {id(each.model): each.model for each in under_way if each.model is not None}
        places = {model: place for place, model in enumerate(models)}

        def plain(each: Assignment) -> dict[str, Any]:
            # asdict would copy the model
            place = places.get(id(each.model), -1)
            bare = Assignment(each.node, each.kind, each.round, each.cohort, None, each.tag)
            times = {"id": each.id, "sent": each.sent, "expires": each.expires}
            times["nonce"] = each.nonce
            return {**asdict(bare), **times, "model": place}

        return {
            "models": [from_record(model) for model in models.values()],
            "open": [plain(each) for each in self._open.values()],
            "late": [plain(each) for each in self._late.values()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, in place of all that is known."""
        models = {place: to_record(arrays) for place, arrays in enumerate(state.get("models", []))}

        def made(kept: Mapping[str, Any]) -> Assignment:
            return Assignment(**{**kept, "model": models.get(int(kept["model"]))})

        opened, late = (map(made, state.get(name, [])) for name in ("open", "late"))
        self._open = {each.id: each for each in opened}
        self._late = {each.id: each for each in late}
        self._last = {each.node: each for each in self._open.values()}
        self._occasion = ("", 0)


Arrays = dict[str, NDArray[Any]]

_MOST_HELD = 100_000  # nodes whose held model is known; others are sent the whole model
# Models that changes start from. Clients that train every tenth round hold one that is ten rounds
# old; there are more of a small model, as they also take more time to encode from.
_FEWEST_STARTS, _MOST_STARTS, _BYTES_OF_STARTS = 4, 64, 2**26


class HeldModels:
    """What the server knows of the models that its clients keep, by their tags.

    With ``every_message`` clients are to keep the model of every message, not only that of a
    question.
    """

    def __init__(self, *, every_message: bool = False) -> None:
        self.every_message = every_message
        self.models: dict[str, Arrays] = {}  # those that changes can start from, the oldest first
        self._held: dict[int, str] = {}

    def of(self, node: int) -> str:
        """Return the tag of the model that a node keeps; empty if it is not known to keep one."""
        return self._held.get(node, "")

    def anybody(self) -> bool:
        """Return whether any node is known to keep a model."""
        return bool(self._held)

    def learn(self, nodes: Iterable[int], tag: str) -> None:
        """Learn that nodes keep the model of a tag, or with an empty one that they keep none."""
        if len(self._held) > _MOST_HELD:  # nodes come and go under new ids
            self._held.clear()
        for node in nodes:
            if tag:
                self._held[node] = tag
            else:
                self._held.pop(node, None)

    def sent(self, node: int, tag: str) -> None:
        """Learn that a node is sent a model to keep: until it answers, nobody knows which it has.

        An answer that is lost, late or an error then needs no care: the next message is whole.
        """
        if self._held.get(node) != tag:
            self._held.pop(node, None)

    def keep(self, tag: str, arrays: Arrays) -> None:
        """Keep a model for changes to start from; the oldest ones go when there are too many."""
        self.models.pop(tag, None)
        self.models[tag] = arrays
        size = sum(array.nbytes for array in arrays.values())
        fit = max(_FEWEST_STARTS, min(_MOST_STARTS, _BYTES_OF_STARTS // max(1, size)))
        for oldest in list(self.models)[: max(0, len(self.models) - fit)]:
            del self.models[oldest]
