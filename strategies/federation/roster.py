"""Identity and admission of clients: stable keys for node ids, which change on restarts."""

import hashlib
import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ...core.log.event import shorten
from ...core.wire.flower_private import NodeInfo
from ...core.wire.keys import ANSWERS, CLIENT, IDENTIFY, NOTE, TAGS, VERSIONS
from ...core.wire.records import record_at
from ...core.wire.replies import Replies
from ...core.wire.versions import differences, read_tags
from .grids import NumberedKeys, NumberedNodes, Route, all_node_ids, as_sequence, question

_MOST_SHOWN = 5  # tags of a client in one line of the log


class Admission:
    """What a run asks of its clients.

    Collections that are empty let everyone in. A node needs one of the tags.
    """

    def __init__(self, allowed: Collection[str] = (), tags: Collection[str] = ()) -> None:
        self.allowed = frozenset(allowed)
        self.tags = tuple(tags)

    def __str__(self) -> str:
        """Return it as it stands in a run config, names up to five.

        >>> print(Admission(allowed=["camera-1"], tags=["gpu", "site-a"]))
        clients.allowed = 'camera-1' and clients.tags = 'gpu,site-a'
        """
        names = sorted(self.allowed)
        more = ",..." if len(names) > _MOST_SHOWN else ""
        named = f"clients.allowed = '{','.join(names[:_MOST_SHOWN])}{more}'" if names else ""
        tagged = f"clients.tags = '{','.join(self.tags)}'" if self.tags else ""
        return " and ".join(filter(None, [named, tagged]))

    def is_open(self) -> bool:
        """Return whether everyone may take part."""
        return not self.allowed and not self.tags

    def refusal(self, key: str, tags: Collection[str] | None) -> str:
        """Return why a client may not take part; nothing if it may.

        ``tags`` are those of its node; None as long as it has not said them.
        """
        if self.allowed and key not in self.allowed:
            return "not in clients.allowed"
        if not self.tags:
            return ""
        if tags is not None and any(tag in tags for tag in self.tags):
            return ""
        shown = ", ".join(sorted(tags or ())[:_MOST_SHOWN])
        has = "has not answered yet" if tags is None else f"has the tags {shown}"
        wanted = f"the run is for clients.tags = {','.join(self.tags)!r}"
        return f"{has if shown or tags is None else 'has no tags'}; {wanted}"


_log = logging.getLogger("forager")
_NAMED = 5  # clients in one line of the log
_LONGEST = 200  # characters of a name
_GIVEN = re.compile("(key|node)-[0-9a-f]{16}")  # names that are given here, so that nobody has two
_MOST_TAGS = 64  # of a node that are looked at
_LONGEST_NOTE = 400  # characters
_ASK_AGAIN = 120.0  # seconds until a node that gave no answer is asked again, twice as long then
_RAISED = 2  # Flower's code for an exception in a ClientApp


def key_order(key: str) -> tuple[int, int, str]:
    """Return what to sort keys by: partition ids by number, before other names."""
    return (0, int(key), key) if key.isdecimal() else (1, 0, key)


class Roster:
    """Stable keys of the nodes seen so far.

    A key is the name that the client was registered by, else what it calls itself in its replies
    (its ``client-id``, else its partition id), else a digest of its public key or node id.

    A registered name is its owner's alone, here or away. Any other belongs to the node that used it
    first, as long as that is connected: who else claims it is known by a digest, so nobody damages
    another's record or takes its turn. When the holder is gone, as after a restart with a new node
    id, the claim is granted.
    """

    def __init__(self, route: Route = "query") -> None:
        self.route = route
        self._answers: dict[int, frozenset[str]] = {}  # of those who cannot answer everything
        self._keys: dict[int, str] = {}
        self._ranks: dict[int, tuple[tuple[int, int, str], int]] = {}  # sorting a thousand is slow
        self._asked: set[int] = set()
        self._silent: dict[int, tuple[float, float]] = {}  # no answer: ask again when, after a wait
        self._tags: dict[int, frozenset[str]] = {}  # of those that have said them
        self._holders: dict[str, int] = {}  # whose name it is
        self.names: dict[str, str] = {}  # the owners of clients' data, by key
        self._owners: dict[str, int] = {}  # who was registered by it
        self._claims: dict[int, str] = {}  # names that nodes claim but others hold
        self._connected: Collection[int] = frozenset()
        self._seen: Sequence[int] = ()  # what that was made from
        self._identified: Sequence[int] = ()  # nodes of the last view, all of them asked
        self._numbered: NumberedNodes | None = None  # who need not be asked
        self._order: tuple[list[int], list[int]] = ([], [])  # the last view, and sorted
        self._order_keys: list[str] | None = None  # the keys of that
        self.doubles: list[tuple[int, str]] = []  # nodes that claim a name that is taken, to report

    def called(self, key: str) -> str:
        """Return what lines for people call a client: its owner, where the data say."""
        return self.names.get(key, key)

    def key(self, node_id: int) -> str:
        """Return the key of a node."""
        key = self._keys.get(node_id)
        if key is None and self._numbered is not None and node_id in self._numbered:
            return str(node_id - self._numbered.first)
        return key or self.nameless(node_id)

    def keys(self, node_ids: Iterable[int]) -> Sequence[str]:
        """Return the keys of nodes."""
        if isinstance(node_ids, NumberedNodes):
            return NumberedKeys(node_ids.numbers)
        node_ids = list(node_ids)
        if node_ids == self._order[1]:  # everybody in view, whom several layers look at
            if self._order_keys is None:
                self._order_keys = [self.key(node) for node in node_ids]
            return list(self._order_keys)
        try:
            return [self._keys[node] for node in node_ids]
        except KeyError:
            return [self.key(node) for node in node_ids]

    def away(self, at_most: int = 1000) -> list[str]:
        """Return the keys of clients that have been here, but were not when it was last looked."""
        gone = (key for node, key in self._keys.items() if node not in self._connected)
        return list(islice(gone, at_most))

    def can_answer(self, node_id: int, name: str) -> bool:
        """Return whether a node can answer a question, as far as is known."""
        return node_id not in self._answers or name in self._answers[node_id]

    def tags(self, node_id: int) -> frozenset[str] | None:
        """Return the tags of a node; None as long as it has not said who it is."""
        return self._tags.get(node_id)

    @staticmethod
    @lru_cache(maxsize=4096)
    def nameless(node_id: int) -> str:
        """Return the key that a node has as long as it has sent no name.

        It does not give away the id, by which other nodes could name it in what they send.
        """
        return _given("node", str(node_id).encode())

    def in_order(self, node_ids: Iterable[int]) -> list[int]:
        """Return node ids in the order of their keys, which is the same on every runtime."""
        return sorted(node_ids, key=self._rank)

    def view_in_order(self, node_ids: Iterable[int]) -> Sequence[int]:
        """Return all nodes of a view in that order; sorted again only if they have changed."""
        if isinstance(node_ids, NumberedNodes):
            return node_ids
        node_ids = list(node_ids)
        if node_ids != self._order[0]:
            self._order, self._order_keys = (node_ids, self.in_order(node_ids)), None
        return list(self._order[1])

    def _rank(self, node_id: int) -> tuple[tuple[int, int, str], int]:
        rank = self._ranks.get(node_id)
        return rank if rank is not None else (key_order(self.key(node_id)), node_id)

    def _note(self, node_id: int, key: str) -> None:
        before = self._holders.get(key)
        if before is not None and before != node_id:
            # Its holder was away and another has its name now; when it is back, it claims it again.
            self._keys.pop(before, None)
            self._ranks.pop(before, None)
            self._claims[before] = key
        self._order, self._order_keys = ([], []), None
        self._holders[key] = node_id
        self._keys[node_id] = key
        self._ranks[node_id] = (key_order(key), node_id)

    def learn(self, reply: Message) -> None:
        """Note what a client calls itself in its reply."""
        if reply.has_error():
            return
        said = Replies.of(reply)
        self.meet(said)
        (node,), (name,) = said.nodes, said.clients
        if node not in self._claims and self._owners.get(name, node) != node:
            self._refuse(node, name)

    def meet(self, replies: Replies) -> None:
        """Note what clients call themselves in their replies."""
        for node, key in zip(replies.nodes, replies.clients, strict=True):
            if not self.knows(node):
                self._claim(node, key)

    def _claim(self, node: int, key: str) -> None:
        """Let a node have a name, unless another one has it."""
        if not 0 < len(key) <= _LONGEST or not key.isprintable() or _GIVEN.fullmatch(key):
            return
        if self._is_taken(key, node):
            self._claims[node] = key
            self._refuse(node, key)
        else:
            self._note(node, key)

    def _refuse(self, node: int, key: str) -> None:
        self.doubles.append((node, key))
        text = "client %s claims the name %s, which belongs to another client: refused"
        _log.warning(text, self.called(self.key(node)), key)

    def _register(self, node: NodeInfo) -> None:
        """Let a node have the name that it was registered by, whoever calls itself so."""
        node_id, name = node.node_id, str(getattr(node, "name", ""))[:_LONGEST]
        owner, holder = self._owners.get(name), self._holders.get(name)
        # Of two that were registered by one name, the first that is here has it.
        if not name or not name.isprintable() or self._is_there_besides(node_id, owner):
            return
        self._owners[name] = node_id
        if holder != node_id:
            self._note(node_id, name)
            if holder is not None and holder != owner:
                self._refuse(holder, name)

    def knows(self, node_id: int) -> bool:
        """Return whether a node's reply would say nothing new of its name."""
        named = node_id in self._keys or node_id in self._claims
        return named or (self._numbered is not None and node_id in self._numbered)

    def _is_taken(self, key: str, node_id: int) -> bool:
        """Return whether a name is another node's: by registration, or while that is here."""
        if self._owners.get(key, node_id) != node_id:
            return True
        return self._is_there_besides(node_id, self._holders.get(key))

    def _is_there_besides(self, node_id: int, other: int | None) -> bool:
        return other != node_id and other in self._connected

    def identify(self, grid: Grid, timeout: float, *, persist: bool = False) -> None:
        """Ask nodes that are not known yet, once each, what they call themselves.

        Those that do not answer in time go by their public key or node id until a reply says more.
        With ``persist`` they are asked again, less and less often: needed where a client takes part
        only once it is known.
        """
        self._look(grid)
        nodes = as_sequence(grid.get_node_ids())
        again = self._due(nodes) if persist and self._silent else []
        if isinstance(nodes, NumberedNodes) or (nodes == self._identified and not again):
            return
        known = (self._keys, self._asked, self._numbered or ())
        unknown = [node for node in nodes if not any(node in some for some in known)] + again
        self._identified = nodes
        if unknown:
            self._asked.update(unknown)
            questions = [question(RecordDict(), node, IDENTIFY, self.route) for node in unknown]
            arrived = list(grid.send_and_receive(questions, timeout=timeout))
            self._introduce(list(grid.get_nodes()), arrived)
            self._note_silent(unknown)
            if self.route == "train":
                self._say_who_has_no_mod(questions, arrived)

    def _look(self, grid: Grid) -> None:
        """Learn who is connected, and give names to those who claim them if the holder is not."""
        self._numbered = getattr(grid, "numbered", None)
        connected = all_node_ids(grid)
        if connected != self._seen:
            self._seen = connected
            many = isinstance(connected, NumberedNodes)
            self._connected = connected if many else frozenset(connected)
        for node, key in list(self._claims.items()):
            if node in self._connected and not self._is_taken(key, node):
                del self._claims[node]
                self._note(node, key)

    def _introduce(self, here: Sequence[NodeInfo], arrived: Iterable[Message]) -> None:
        """Name nodes: by registration, by what they call themselves, then by their public keys."""
        for node in here:
            self._register(node)
        replies = [r for r in arrived if r.has_content() and CLIENT in r.content]
        for reply in replies:
            self.learn(reply)
            self._learn_traits(reply)
        self._compare_versions(replies)
        for node in here:
            name = _given("key", node.public_key) if node.public_key else ""
            if name and node.node_id not in self._keys and not self._is_taken(name, node.node_id):
                self._note(node.node_id, name)

    def _due(self, nodes: Iterable[int]) -> list[int]:
        now = time.monotonic()
        return [node for node in nodes if node in self._silent and self._silent[node][0] <= now]

    def _note_silent(self, asked: Iterable[int]) -> None:
        for node in asked:
            _, waited = self._silent.pop(node, (0.0, _ASK_AGAIN / 2))
            if node not in self._tags:
                self._silent[node] = (time.monotonic() + 2 * waited, 2 * waited)

    def _learn_traits(self, reply: Message) -> None:
        """Note a node's tags and what it can answer; say what its operator is to know."""
        node, claimed = reply.metadata.src_node_id, _claimed(reply)
        answers, listed, note = (claimed.get(name) for name in (ANSWERS, TAGS, NOTE))
        if isinstance(answers, list):
            self._answers[node] = frozenset(name for name in answers if isinstance(name, str))
        said = listed[:_MOST_TAGS] if isinstance(listed, list) else []
        try:
            tags = read_tags(",".join(tag for tag in said if isinstance(tag, str)))
        except ValueError:  # it does not say them as this version does
            tags = []
        self._tags[node] = frozenset(tags)
        if isinstance(note, str) and note:
            name = self.called(self.key(node))
            _log.warning("client %s: %s", name, shorten(note, _LONGEST_NOTE))

    def _say_who_has_no_mod(self, questions: Sequence[Message], arrived: Sequence[Message]) -> None:
        """Name those whose app answered for itself: it takes no questions."""
        nodes = {asked.metadata.message_id: asked.metadata.dst_node_id for asked in questions}
        without = []
        for reply in arrived:
            raised = reply.has_error() and reply.error.code == _RAISED
            if raised or (reply.has_content() and CLIENT not in reply.content):
                node = nodes.get(reply.metadata.reply_to_message_id)
                if node is not None:
                    self._answers[node] = frozenset()
                    without.append(self.called(self.key(node)))
        if without:
            _log.warning(
                "client %s has no forager.client_mod, or it failed: it is asked nothing, and "
                "chosen by its age alone",
                _named(without),
            )

    def _compare_versions(self, replies: Iterable[Message]) -> None:
        """Warn where devices run other versions than the server, which may cause faults."""
        others: dict[str, list[str]] = {}
        for reply in replies:
            differs = differences(_claimed(reply).get(VERSIONS))
            name = self.called(self.key(reply.metadata.src_node_id))
            others.setdefault(differs, []).append(name)
        others.pop("", None)
        for differs, keys in others.items():
            _log.warning(
                "mixed versions: client %s %s. Update the device, or the server (docker/README.md, "
                "Updates): messages that only one side knows may fail",
                *(_named(keys), differs),
            )


def _claimed(reply: Message) -> Mapping[str, Any]:
    """Return what a client says of itself."""
    return record_at(reply.content, CLIENT, ConfigRecord) or {}


def _named(keys: Sequence[str]) -> str:
    return ", ".join(keys[:_NAMED]) + (" and others" if len(keys) > _NAMED else "")


@lru_cache(maxsize=10_000)
def _given(kind: str, what: bytes) -> str:
    return f"{kind}-{hashlib.blake2b(what, digest_size=8).hexdigest()}"
