"""Who a client is, and its data; arrays that virtual clients save are never changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flwr.app import Context, RecordDict

from ..core.tasks.errors import SayableError
from ..core.wire.flower_private import in_simulation


class VirtualContext(Context):
    """Flower's context of a virtual client, with a memory of its own."""

    def __init__(
        self, node: int, number: int, of: int, run_config: dict[str, Any], changed: set[int]
    ) -> None:
        place: dict[str, Any] = {"partition-id": number, "num-partitions": of}
        super().__init__(1, node, place, RecordDict(), run_config)
        self.memory: dict[str, Any] = {}
        self._changed = changed  # the nodes whose memory has changed

    def keep(self, name: str, content: Any) -> None:
        """Keep something under a name."""
        self.memory[name] = content
        self._changed.add(self.node_id)


def is_simulated(context: Context) -> bool:
    """Return whether a client's data are the experimenter's own, as the runtime knows.

    A partition-id says nothing of that: a device may have one.
    """
    return isinstance(context, VirtualContext) or in_simulation()


class VirtualClients(Sequence[Context]):
    """The contexts of some virtual clients."""

    def __init__(self, nodes: Sequence[int], first: int, contexts: Mapping[int, Context]) -> None:
        self._nodes = nodes
        self._first = first  # the node of client number 0
        self._contexts = contexts  # of all clients, by node

    @property
    def numbers(self) -> list[int]:
        """The number of each client: its partition of the data, and its name."""
        first = self._first
        return [node - first for node in self._nodes]

    @property
    def total(self) -> int:
        """How many clients there are in all."""
        return len(self._contexts)

    def select(self, rows: Sequence[int]) -> VirtualClients:
        """Return some of them, in this order."""
        return VirtualClients([self._nodes[row] for row in rows], self._first, self._contexts)

    def __getitem__(self, index: int) -> Context:  # type: ignore[override]
        return self._contexts[self._nodes[index]]

    def __iter__(self) -> Iterator[Context]:
        return map(self._contexts.__getitem__, self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


if TYPE_CHECKING:
    from ..core.tasks import ClientData, Task


def client_key(context: Context) -> str:
    """Return ``client-id`` or partition id of the node config; nothing: known by its public key."""
    config = context.node_config
    return str(config.get("client-id") or config.get("partition-id", ""))


def client_keys(contexts: Sequence[Context]) -> list[str]:
    """Return the names of several clients."""
    if isinstance(contexts, VirtualClients):
        return list(map(str, contexts.numbers))
    return [client_key(context) for context in contexts]


def client_data(context: Context, task: Task) -> ClientData:
    """Return the client's own data: its partition, or what ``data-path`` names on a device."""
    config = context.node_config
    if "partition-id" in config and "num-partitions" in config:
        return task.client_data(int(config["partition-id"]), int(config["num-partitions"]))
    if "data-path" in config:
        return task.device_data(str(config["data-path"]))
    raise SayableError(
        "node config: give partition-id and num-partitions, or data-path with this device's data; "
        f"found {sorted(config) or 'nothing'}"
    )
