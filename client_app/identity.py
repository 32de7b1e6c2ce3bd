"""Who this client is and which data are its own, from Flower's context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flwr.app import Context

from ..core.tasks.errors import SayableError
from .clients import VirtualClients

if TYPE_CHECKING:
    from ..core.tasks import ClientData, Task


def client_key(context: Context) -> str:
    """Return the client's stable name: its ``client-id``, else its partition id, else nothing.

    Both come from the node config. A client without either is known to the server by its public
    key.
    """
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
