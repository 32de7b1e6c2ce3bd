"""One handle for what all layers do: list and ask clients, set replies aside, write events."""

import logging
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableSequence,
    Sequence,
)
from contextlib import contextmanager
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ...core.log.events import Event, LeftOut, Quarantined
from ...core.log.text import shorten
from ...core.tasks.metrics import ACCURACY, Metric
from ...core.wire.broadcast import Broadcast, whole_or_list
from ...core.wire.keys import ARRAYS, CONFIG, ROUND, RUN, SCALE, WANTS
from ...core.wire.records import filled, node_of, record_at, sender_of, sent_arrays
from .admission import Admission
from .grids import GridWrapper, as_sequence
from .held_models import HeldModels
from .punctuality import ResponseTimes
from .questions import Route, question
from .roster import Roster

_log = logging.getLogger("forager")
_LONGEST_REST = 64  # most rounds for which a silent client is left alone
_LONGEST_REASON = 1000  # characters; what a client sent may be part of it
_MOST_STRIKES = 10_000  # clients whose bad replies are counted
_SHOWN, _MOST_NAMED = 5, 100  # clients in one line of the log, and in one event

Journal = Callable[[Event], None]


class BadReply(ValueError):
    """Why a reply, or an answer to a question, is set aside."""


def silent(event: Event) -> None:
    """Keep nothing: the journal of a federation that nobody listens to."""


class Federation:
    """The clients of a run, as all layers of its stack see them.

    Layers that stand around one another share one federation: see
    :class:`~strategies.layers.base.Layer`.

    Parameters
    ----------
    deadline : float (default: 600.0)
        Seconds to wait for the answers to a question.
    quorum : float (default: 0.8)
        Share of answers after which to wait for the others only as long again.
    identify_timeout : float (default: 60.0)
        Seconds to wait for new nodes to say who they are.
    run : str (default: "")
        What clients know the run by and keep its state under; if empty, they go by Flower's run id.
    allowed : collection of str (default: everyone)
        Keys of the clients that may take part.
    tags : collection of str (default: any)
        Only nodes with at least one of these tags may take part.
    metrics : sequence of Metric (default: accuracy)
        What models are judged by; the first is the one that matters.
    keep_models : bool (default: False)
        Whether clients are to keep the model of every message, so that the next can be a change.
    route : str (default: "query")
        How questions reach clients: see :mod:`strategies.federation.questions`.
    """

    def __init__(
        self,
        *,
        deadline: float = 600.0,
        quorum: float = 0.8,
        identify_timeout: float = 60.0,
        run: str = "",
        allowed: Collection[str] = (),
        tags: Collection[str] = (),
        metrics: Sequence[Metric] = (ACCURACY,),
        keep_models: bool = False,
        route: Route = "query",
    ) -> None:
        self.roster = Roster(route)
        self.deadline = deadline
        self.quorum = quorum
        self.identify_timeout = identify_timeout
        self.run = run
        self.admission = Admission(allowed, tags)
        self.metrics = tuple(metrics)
        self._left_out: set[int] = set()  # nodes that have been named
        self.journal: Journal = silent
        self.busy: set[int] = set()  # nodes that still train for an earlier round
        self.scale = ""  # what clients scale their inputs by, if the run does
        self.strikes: Counter[str] = Counter()  # replies set aside, by client
        self.last_refusal = ""  # whose reply was set aside last, and why
        self._occasion = ("", 0)
        self._sent: dict[int, Message | Broadcast] = {}
        self._sent_for: dict[int, str | None] = {}  # the cohort that each of them is of
        self._cohort: str | None = None
        self.times = ResponseTimes()
        self.held = HeldModels(every_message=keep_models)
        self._misses: Counter[str] = Counter()  # questions in a row without an answer
        self._rests_until: dict[str, int] = {}

    def nodes(self, grid: Grid) -> Sequence[int]:
        """Return the nodes that may take part, of those in view, in the order of their keys.

        New ones are asked for their names.
        """
        everyone = self.admission.is_open()
        self.roster.identify(grid, self.identify_timeout, persist=not everyone)
        while self.roster.doubles:
            node, key = self.roster.doubles.pop()
            reason = f"node {node} claims the name {key}, which another node has"
            self.note(Quarantined(client=self.key(node), reason=reason))
        here = grid.get_node_ids()
        if self.busy:
            here = [node for node in here if node not in self.busy]
        nodes = self.roster.view_in_order(here)
        return nodes if everyone else self._admitted(nodes)

    def in_view(self, grid: Grid) -> Sequence[int]:
        """Return all nodes in view that the run is for, those that still train included."""
        here = as_sequence(grid.get_node_ids())
        if self.admission.is_open():
            return here
        self.roster.identify(grid, self.identify_timeout, persist=True)
        return self._admitted(here)

    def _admitted(self, nodes: Sequence[int]) -> Sequence[int]:
        """Return the nodes that the run is for; the others are named once, by reason."""
        admitted, news = [], dict[str, list[str]]()
        for node in nodes:
            key = self.key(node)
            reason = self.admission.refusal(key, self.roster.tags(node))
            if not reason:
                admitted.append(node)
            elif node not in self._left_out and len(self._left_out) < _MOST_STRIKES:
                self._left_out.add(node)
                news.setdefault(reason, []).append(key)
        for reason, keys in news.items():
            self.note(LeftOut(count=len(keys), clients=keys[:_MOST_NAMED], reason=reason))
            more = len(keys) - _SHOWN
            names = ", ".join(keys[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
            told = (len(keys), len(nodes), names, reason)
            _log.warning("left out: %d of %d clients, %s (%s)", *told)
        return admitted

    def ready_to_train(self, nodes: Sequence[int], server_round: int) -> Sequence[int]:
        """Return the nodes that do not rest, neither for silence nor for training too slowly."""
        awake = self.awake(nodes, server_round)
        if not self.times.anybody_rests():
            return awake
        return [node for node in awake if not self.times.rests(self.key(node), server_round)]

    def awake(self, nodes: Sequence[int], server_round: int) -> Sequence[int]:
        """Return the nodes that do not rest for having left messages unanswered."""
        if not self._rests_until:
            return nodes
        return [node for node in nodes if not self._rests(node, server_round)]

    def key(self, node_id: int) -> str:
        """Return the stable name of a client."""
        return self.roster.key(node_id)

    def key_of(self, reply: Message) -> str:
        """Return the stable name of the client that a reply is from."""
        return self.roster.key(reply.metadata.src_node_id)

    def keys(self, nodes: Iterable[int]) -> Sequence[str]:
        """Return the stable names of clients."""
        return self.roster.keys(nodes)

    def remember(
        self, occasion: tuple[str, int], messages: Iterable[Message]
    ) -> MutableSequence[Message]:
        """Keep what every client is sent; layers may still change the messages.

        What was sent on another occasion, such as ``("train", 2)`` for round 2, is forgotten.
        """
        messages = whole_or_list(messages)
        if occasion != self._occasion:
            kept = {node: sent for node, sent in self._sent.items() if node in self.busy}
            self._occasion, self._sent = occasion, kept
            self._sent_for = {node: self._sent_for[node] for node in kept}
        if isinstance(messages, Broadcast):
            self._sent.update(dict.fromkeys(messages.nodes, messages))
            self._sent_for.update(dict.fromkeys(messages.nodes, self._cohort))
        else:
            self._sent.update((node_of(message), message) for message in messages)
            self._sent_for.update((node_of(message), self._cohort) for message in messages)
        return messages

    def _sent_to(self, node_id: int) -> Message:
        sent = self._sent[node_id]
        return sent.to(node_id) if isinstance(sent, Broadcast) else sent

    def sent_model(self, node_id: int) -> ArrayRecord:
        """Return the model that a client was sent last; :class:`BadReply` if it was sent none."""
        if node_id not in self._sent:
            raise BadReply("nobody asked for it")
        return sent_arrays(self._sent_to(node_id), ARRAYS)

    def cohort_of(self, node_id: int) -> str | None:
        """Return the cohort whose model a client was sent last; None if there are no cohorts."""
        return self._sent_for.get(node_id)

    def sent_round(self, node_id: int) -> int:
        """Return the round in which a client was sent its model."""
        config = record_at(self._sent_to(node_id).content, CONFIG, ConfigRecord)
        return int(str(config[ROUND])) if config is not None else 0

    def ask(
        self,
        grid: Grid,
        server_round: int,
        kind: str,
        nodes: Sequence[int],
        content: Callable[[int], Mapping[str, Any]] | Mapping[str, Any],
    ) -> dict[int, Message]:
        """Ask clients a question and return the answers by node.

        A client that does not answer in time is left out, and asked less and less often. One that
        is known not to have an answer is not asked. Errors are counted where they arrive.

        Parameters
        ----------
        grid : Grid
            How to reach the clients.
        server_round : int
            The round that the question is for.
        kind : str
            Kind of message.
        nodes : sequence of int
            Whom to ask.
        content : mapping or callable
            The records to send, or a function of the node that returns them. Settings under
            ``"config"`` are a plain dict, to which the round is added.
        """
        awake = self.awake(nodes, server_round)
        # Most clients are asked the same. What was asked is kept: an id is unique among the living.
        made: dict[int, tuple[Mapping[str, Any], RecordDict]] = {}
        messages, asked = [], []
        for node in awake:
            records = content(node) if callable(content) else content
            if not self.roster.can_answer(node, records.get(CONFIG, {}).get(WANTS, kind)):
                continue
            if id(records) not in made:
                made[id(records)] = (records, self._question(server_round, records))
            messages.append(question(made[id(records)][1], node, kind, self.roster.route))
            asked.append(node)
        if not asked:
            return {}
        if isinstance(grid, GridWrapper):
            replies = grid.ask(messages, self.deadline, self.quorum)
        else:
            replies = grid.send_and_receive(messages, timeout=self.deadline)
        answers: dict[int, Message] = {}
        for reply in replies:
            if not reply.has_error():
                self.roster.learn(reply)
                answers[reply.metadata.src_node_id] = reply
        for node in asked:
            self.heard(self.key(node), server_round, answered=node in answers)
        return answers

    def _question(self, server_round: int, content: Mapping[str, Any]) -> RecordDict:
        settings = {ROUND: server_round, **content.get(CONFIG, {})}
        if self.run:
            settings[RUN] = self.run
        if self.scale:
            settings[SCALE] = self.scale
        return filled(RecordDict, {**content, CONFIG: filled(ConfigRecord, settings)})

    def _rests(self, node: int, server_round: int) -> bool:
        return server_round < self._rests_until.get(self.key(node), 0)

    def heard(self, key: str, server_round: int, *, answered: bool) -> None:
        """Learn that a client has answered in time, or has not: then it rests for some rounds."""
        if answered:
            if self._misses:
                self._misses.pop(key, None)
                self._rests_until.pop(key, None)
        elif key in self._misses or len(self._misses) < _MOST_STRIKES:
            self._misses[key] += 1
            rest = min(_LONGEST_REST, 2 ** (self._misses[key] - 1))
            self._rests_until[key] = server_round + 1 + rest

    def sound(
        self, server_round: int, replies: Iterable[Message], read: Callable[[Message], None]
    ) -> Iterator[Message]:
        """Yield the replies that a layer can read; set the others aside.

        ``read`` raises :class:`BadReply`, or the ValueError of a decoder, for a reply that cannot
        be used. Errors are passed on: they are counted where they arrive.
        """
        for reply in replies:
            try:
                if not reply.has_error():
                    read(reply)
            except ValueError as error:
                self.set_aside(server_round, sender_of(reply), str(error))
            else:
                yield reply

    def readable(
        self,
        server_round: int,
        answers: Mapping[int, Message],
        read: Callable[[Message], Any],
    ) -> dict[int, Any]:
        """Return what ``read`` makes of answers, by node; set those aside that it refuses."""
        found: dict[int, Any] = {}
        for node, answer in answers.items():
            try:
                found[node] = read(answer)
            except ValueError as error:
                self.set_aside(server_round, node, str(error))
        return found

    def set_aside(self, server_round: int, node_id: int, reason: str) -> None:
        """Log that a reply is not used, and count it against its client."""
        key = self.key(node_id)
        if key in self.strikes or len(self.strikes) < _MOST_STRIKES:
            self.strikes[key] += 1
        told = shorten(reason, _LONGEST_REASON)
        self.last_refusal = f"client {key}: {told}"
        self.note(Quarantined(round=server_round, client=key, reason=told))

    def note(self, event: Event) -> None:
        """Write an event, under the current cohort."""
        if self._cohort is not None and event.cohort is None:
            event = event.model_copy(update={"cohort": self._cohort})
        self.journal(event)

    @contextmanager
    def in_cohort(self, cohort: str) -> Iterator[None]:
        """Let events be those of a cohort."""
        before, self._cohort = self._cohort, cohort
        try:
            yield
        finally:
            self._cohort = before
