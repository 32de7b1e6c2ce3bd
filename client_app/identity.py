"""Who this client is and which data are its own, from Flower's context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from ..core.wire.keys import CLIENT, CLIENT_KEY, NOTE, TAGS, VERSIONS
from ..core.wire.records import filled
from ..core.wire.tags import read_tags
from ..core.wire.versions import versions
from .virtual_clients import VirtualClients

if TYPE_CHECKING:
    from ..core.config import RunConfig
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
        return [str(number) for number in contexts.numbers]
    return [client_key(context) for context in contexts]


def client_config(context: Context) -> RunConfig:
    """Return the typed run config, with the node's own device; parsed once per process."""
    from ..core.config import read_config  # what a worker answers does not need it here

    device = context.node_config.get("device")
    own = {} if device is None else {"device": str(device)}
    return read_config({**context.run_config, **own} if own else context.run_config)


def client_task(context: Context) -> Task:
    """Return the task of the run; loaded once per process."""
    from ..core.tasks import load_task  # with torch, which not every message needs

    return load_task(client_config(context).task_spec())


def client_data(context: Context, task: Task) -> ClientData:
    """Return the client's own data: its partition, or what ``data-path`` names on a device."""
    config = context.node_config
    if "partition-id" in config and "num-partitions" in config:
        return task.client_data(int(config["partition-id"]), int(config["num-partitions"]))
    if "data-path" in config:
        return task.device_data(str(config["data-path"]))
    raise ValueError(
        "node config: give partition-id and num-partitions, or data-path with this device's data; "
        f"found {sorted(config) or 'nothing'}"
    )


def reply_header(context: Context, note: str = "") -> dict[str, Any]:
    """Return the beginnings of a reply: who answers, and a note if there is one."""
    said = {CLIENT_KEY: client_key(context)} | ({NOTE: note} if note else {})
    return {CLIENT: filled(ConfigRecord, said)}


def identify_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Say who each client is, which versions it runs, and which tags its node has."""
    return [
        Message(RecordDict({CLIENT: filled(ConfigRecord, introduction(context))}), reply_to=message)
        for message, context in zip(messages, contexts, strict=True)
    ]


def introduction(context: Context) -> dict[str, Any]:
    """Return what a client says when it is asked who it is.

    Tags that cannot be read are reported instead of used: the device is sound otherwise.
    """
    said: dict[str, Any] = {CLIENT_KEY: client_key(context), VERSIONS: versions(), TAGS: []}
    text = str(context.node_config.get("tags", ""))
    try:
        said[TAGS] = read_tags(text)
    except ValueError as error:
        said[NOTE] = f"node config: tags = {text!r}: {error}"
    return said
