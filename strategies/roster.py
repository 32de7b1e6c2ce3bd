"""Who is who: stable client keys for Flower's node ids, which change when a device restarts."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from wire.keys import CLIENT, CLIENT_KEY, IDENTIFY, VERSIONS
from wire.records import record_at
from wire.versions import differences

_log = logging.getLogger("forager")
_NAMED = 5  # clients in one line of the log


def key_order(key: str) -> tuple[int, int, str]:
    """Return what to sort keys by: partition ids by number, before other names.

    >>> sorted(["10", "9", "camera"], key=key_order)
    ['9', '10', 'camera']
    """
    return (0, int(key), key) if key.isdecimal() else (1, 0, key)


class Roster:
    """Stable keys of the nodes seen so far.

    A key is what the client calls itself in its replies (its ``client-id``, else its partition id),
    else a digest of its public key, else its node id.
    """

    def __init__(self) -> None:
        self._keys: dict[int, str] = {}
        self._ranks: dict[int, tuple[tuple[int, int, str], int]] = {}  # sorting a thousand is slow
        self._asked: set[int] = set()
        self.strikes: Counter[str] = Counter()  # replies set aside, by client

    def key(self, node_id: int) -> str:
        """Return the key of a node."""
        return self._keys.get(node_id) or f"node-{node_id}"

    def in_order(self, node_ids: Iterable[int]) -> list[int]:
        """Return node ids in the order of their keys, which is the same on every runtime."""
        return sorted(node_ids, key=self._rank)

    def _rank(self, node_id: int) -> tuple[tuple[int, int, str], int]:
        rank = self._ranks.get(node_id)
        return rank if rank is not None else (key_order(self.key(node_id)), node_id)

    def _note(self, node_id: int, key: str) -> None:
        self._keys[node_id] = key
        self._ranks[node_id] = (key_order(key), node_id)

    def learn(self, reply: Message) -> None:
        """Note what a client calls itself in its reply."""
        node = reply.metadata.src_node_id
        if node in self._keys or reply.has_error():
            return
        claimed = record_at(reply.content, CLIENT, ConfigRecord)
        key = claimed.get(CLIENT_KEY) if claimed is not None else None
        if isinstance(key, str) and 0 < len(key) <= 200:
            self._note(node, key)

    def identify(self, grid: Grid, timeout: float) -> None:
        """Ask nodes that are not known yet, once each, what they call themselves.

        A seeded choice repeats only over keys that do, and a client is to be called by one name
        from its first round on. Those that do not answer in time go by their public key or node id
        until a reply tells more.
        """
        unknown = [
            node
            for node in grid.get_node_ids()
            if node not in self._keys and node not in self._asked
        ]
        if not unknown:
            return
        self._asked.update(unknown)
        questions = [
            Message(RecordDict(), dst_node_id=node, message_type=IDENTIFY) for node in unknown
        ]
        replies = [r for r in grid.send_and_receive(questions, timeout=timeout) if r.has_content()]
        for reply in replies:
            self.learn(reply)
        self._compare_versions(replies)
        for node in grid.get_nodes():
            if node.node_id not in self._keys and node.public_key:
                digest = hashlib.blake2b(node.public_key, digest_size=8).hexdigest()
                self._note(node.node_id, f"key-{digest}")

    def _compare_versions(self, replies: Iterable[Message]) -> None:
        """Say so where devices run something else than the server: faults may come of it."""
        others: dict[str, list[str]] = {}
        for reply in replies:
            claimed = record_at(reply.content, CLIENT, ConfigRecord)
            differs = differences(claimed.get(VERSIONS) if claimed is not None else None)
            others.setdefault(differs, []).append(self.key(reply.metadata.src_node_id))
        others.pop("", None)
        for differs, keys in others.items():
            names = ", ".join(keys[:_NAMED]) + (" and others" if len(keys) > _NAMED else "")
            _log.warning(
                "mixed versions: client %s %s. Update the device, or the server (docker/README.md, "
                "Updates): messages may fail that only one side knows",
                names,
                differs,
            )
