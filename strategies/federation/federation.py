"""One handle for what all layers do: list and ask clients, set replies aside, write events."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ...core.backoff import rest
from ...core.log.event import shorten
from ...core.log.events import Event, LeftOut, Quarantined
from ...core.tasks.metrics import ACCURACY, Metric
from ...core.wire.keys import CONFIG, ROUND, RUN, SCALE, SETTINGS, WANTS
from ...core.wire.records import filled
from ...core.wire.replies import Replies, Row, tables_in
from ...core.wire.requests import Requests
from ...core.wire.schemas import BadReply
from ...selectors.stateful import Stateful
from .client_memory import ClientMemory, ResponseTimes
from .grids import GridWrapper, Route, as_sequence, question
from .ledger import HeldModels, Ledger
from .observations import Reader
from .releases import Releases
from .roster import Admission, Roster

_log = logging.getLogger("forager")
_LONGEST_REASON = 1000  # characters; what a client sent may be part of it
_MOST_STRIKES = 10_000  # clients whose bad replies are counted
_SHOWN, _MOST_NAMED = 5, 100  # clients in one line of the log, and in one event

Journal = Callable[[Event], None]


def silent(event: Event) -> None:
    """Keep nothing: the journal of a federation that nobody listens to."""


class Federation(Stateful):
    """The clients of a run, as all layers of its stack see them."""

    remembers = ("memory", "times", "strikes")

    def __init__(
        self,
        *,
        deadline: float = 600.0,  # seconds to wait for the answers to a question
        quorum: float = 0.8,  # share of answers after which to wait only as long again
        identify_timeout: float = 60.0,  # seconds for new nodes to say who they are
        run: str = "",  # what clients know the run by; if empty, by Flower's run id
        allowed: Collection[str] = (),  # keys of those that may take part, if not all
        tags: Collection[str] = (),  # of which a node must have one, if there are any
        metrics: Sequence[Metric] = (ACCURACY,),  # that judge models, the main one first
        keep_models: bool = False,  # clients keep each model: the next can be a change
        route: Route = "query",  # how questions reach clients: see :func:`question`
        settings: str = "",  # the run config as JSON, for clients of another app
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
        self.ledger = Ledger()
        self.scale = ""  # what clients scale their inputs by, if the run does
        self.settings = settings
        self.strikes: Counter[str] = Counter()  # replies set aside, by client
        self.last_refusal = ""  # whose reply was set aside last, and why
        self.cohort: str | None = None  # whose turn it is
        self.simulated = False  # whether the runtime is a simulation, as the server app finds
        self.memory = ClientMemory()
        self.times = ResponseTimes()
        self.discreet = False  # whether events leave out what clients computed from their data
        self.releases = Releases()  # the account of privacy
        self.folder: Path | None = None  # on whose disk replies may wait, if the run has one
        self.held = HeldModels(every_message=keep_models)
        self._misses: Counter[str] = Counter()  # questions in a row without an answer
        self._rests_until: dict[str, int] = {}
        self._refused, self._passed_over = set[str](), set[str]()  # in this round, and its retries

    def nodes(self, grid: Grid) -> Sequence[int]:
        """Return the nodes in view that may take part, by key; new ones are asked their names."""
        everyone = self.admission.is_open()
        self.roster.identify(grid, self.identify_timeout, persist=not everyone)
        while self.roster.doubles:
            node, key = self.roster.doubles.pop()
            reason = f"claims the name {key}, which is another's"
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
            names = ", ".join(map(self.roster.called, keys[:_SHOWN]))
            names += f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
            told = (len(keys), len(nodes), names, reason)
            _log.warning("left out: %d of %d clients, %s (%s)", *told)
        return admitted

    def begin_round(self, *, again: bool) -> None:
        """Begin a round; if it failed, then without those whose replies could not be used."""
        self._passed_over = self._passed_over | self._refused if again else set()
        self._refused = set()

    def ready_to_train(self, nodes: Sequence[int], server_round: int) -> Sequence[int]:
        """Return the nodes that do not rest: for silence, training too slowly, or a bad reply."""
        awake = self.awake(nodes, server_round)
        if self._passed_over:
            awake = [node for node in awake if self.key(node) not in self._passed_over]
        if not self.times.anybody_rests():
            return awake
        return [node for node in awake if not self.times.rests(self.key(node), server_round)]

    def awake(self, nodes: Sequence[int], server_round: int) -> Sequence[int]:
        """Return the nodes that do not rest for having left messages unanswered."""
        if not self._rests_until:
            return nodes
        until, key = self._rests_until, self.key
        return [node for node in nodes if server_round >= until.get(key(node), 0)]

    def key(self, node_id: int) -> str:
        """Return the stable name of a client."""
        return self.roster.key(node_id)

    def keys(self, nodes: Iterable[int]) -> Sequence[str]:
        """Return the stable names of clients."""
        return self.roster.keys(nodes)

    @property
    def busy(self) -> set[int]:
        """The nodes that still train for an earlier round."""
        return self.ledger.busy

    def assign(self, server_round: int, messages: Iterable[Message]) -> Sequence[Message]:
        """Keep what every client is asked, for the current cohort; return it as a table."""
        requests = Requests.of(messages)
        if requests is None:
            return []
        self.ledger.assign(requests, server_round, self.cohort)
        return requests

    def sent_model(self, node_id: int) -> ArrayRecord:
        """Return the model that a client was sent last; :class:`BadReply` if it was sent none."""
        assignment = self.ledger.of_node(node_id)
        if assignment is None or assignment.model is None:
            raise BadReply("nobody asked for it")
        return assignment.model

    def ask(
        self,
        grid: Grid,
        server_round: int,
        kind: str,
        nodes: Sequence[int],
        content: Callable[[int], Mapping[str, Any]] | Mapping[str, Any],
    ) -> list[Replies]:
        """Ask clients a question and return the answers.

        A client that does not answer in time is left out, and asked less and less often. One that
        is known not to have an answer is not asked. Errors are counted where they arrive.
        ``content`` are the records to send, or a function of the node that returns them. Settings
        under ``"config"`` are a plain dict, to which the round is added.
        """
        requests = self._questions(server_round, kind, self.awake(nodes, server_round), content)
        if requests is None:
            return []
        if isinstance(grid, GridWrapper):
            replies = grid.ask(requests, self.deadline, self.quorum)
        else:
            replies = grid.send_and_receive(requests, timeout=self.deadline)
        tables = list(tables_in(replies))
        answered = set[int]()
        for table in tables:
            self.roster.meet(table)
            answered.update(table.nodes)
        for node in requests.nodes:
            if self._misses or node not in answered:
                self.heard(self.key(node), server_round, answered=node in answered)
        return tables

    def _questions(
        self,
        server_round: int,
        kind: str,
        nodes: Sequence[int],
        content: Callable[[int], Mapping[str, Any]] | Mapping[str, Any],
    ) -> Requests | None:
        """Return a question to each node that can answer it; most are asked the same."""
        groups: dict[int, tuple[Mapping[str, Any], list[int]]] = {}
        for node in nodes:
            records = content(node) if callable(content) else content
            if self.roster.can_answer(node, records.get(CONFIG, {}).get(WANTS, kind)):
                groups.setdefault(id(records), (records, []))[1].append(node)
        asked = [
            Requests(
                question(self._question(server_round, records), some[0], kind, self.roster.route),
                some,
            )
            for records, some in groups.values()
        ]
        return Requests.joined(asked)

    def _question(self, server_round: int, content: Mapping[str, Any]) -> RecordDict:
        settings = {ROUND: server_round, **content.get(CONFIG, {})}
        more = {RUN: self.run, SCALE: self.scale, SETTINGS: self.settings}
        settings |= {key: value for key, value in more.items() if value}
        return filled(RecordDict, {**content, CONFIG: filled(ConfigRecord, settings)})

    def heard(self, key: str, server_round: int, *, answered: bool) -> None:
        """Learn that a client has answered in time, or has not: then it rests for some rounds."""
        if answered:
            if self._misses:
                self._misses.pop(key, None)
                self._rests_until.pop(key, None)
        elif key in self._misses or len(self._misses) < _MOST_STRIKES:
            self._misses[key] += 1
            self._rests_until[key] = server_round + 1 + rest(self._misses[key])

    def sound(self, server_round: int, replies: Replies, wrong: Mapping[int, str]) -> Replies:
        """Return the rows that can be used; set the others aside, by the reasons given."""
        for row, reason in wrong.items():
            self.set_aside(server_round, replies.nodes[row], reason)
        return replies.without(wrong)

    def read_rows(
        self, server_round: int, replies: Replies, read: Callable[[Row], None]
    ) -> Replies:
        """Return the rows that ``read`` raises no ValueError for; set the others aside."""
        wrong: dict[int, str] = {}
        for row in replies.rows():
            try:
                read(row)
            except ValueError as error:
                wrong[row.place] = str(error)
        return self.sound(server_round, replies, wrong)

    def columns(
        self, server_round: int, answers: Iterable[Replies], read: Reader
    ) -> dict[int, Any]:
        """Return what a reader of columns makes of answers, by node; the rest is set aside."""
        found: dict[int, Any] = {}
        for table in answers:
            values, wrong = read(table)
            wrong |= table.faults
            sound = self.sound(server_round, table, wrong)
            kept = [value for row, value in enumerate(values) if row not in wrong]
            found.update(zip(sound.nodes, kept, strict=True))
        return found

    def readable(
        self, server_round: int, answers: Iterable[Replies], read: Callable[[Row], Any]
    ) -> dict[int, Any]:
        """Return what ``read`` makes of each answer, by node; set those aside that it refuses."""
        found: dict[int, Any] = {}

        def keep(row: Row) -> None:
            found[row.node] = read(row)

        for table in answers:
            self.read_rows(server_round, self.sound(server_round, table, table.faults), keep)
        return found

    def set_aside(self, server_round: int, node_id: int, reason: str) -> None:
        """Log that a reply is not used, and count it against its client."""
        key = self.key(node_id)
        self._refused.add(key)
        if key in self.strikes or len(self.strikes) < _MOST_STRIKES:
            self.strikes[key] += 1
        told = shorten(reason, _LONGEST_REASON)
        self.last_refusal = f"client {self.roster.called(key)}: {told}"
        if self.strikes[key] == 1 and len(self.strikes) <= _SHOWN:
            _log.warning("a reply is set aside, %s", self.last_refusal)
        self.note(Quarantined(round=server_round, client=key, reason=told))

    def note(self, event: Event) -> None:
        """Write an event, under the current cohort."""
        if self.cohort is not None and event.cohort is None:
            event = event.model_copy(update={"cohort": self.cohort})
        self.journal(event.without_data() if self.discreet else event)

    @contextmanager
    def in_cohort(self, cohort: str) -> Iterator[None]:
        """Let events be those of a cohort."""
        before, self.cohort = self.cohort, cohort
        try:
            yield
        finally:
            self.cohort = before
