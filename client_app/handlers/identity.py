"""Handler of ``query.identify``: who each client is."""

from typing import Any

from flwr.app import ConfigRecord, Context

from ...core.wire.keys import CLIENT, CLIENT_KEY, NOTE, TAGS, VERSIONS
from ...core.wire.records import filled
from ...core.wire.replies import Replies
from ...core.wire.versions import read_tags, versions
from ..batch import ClientBatch
from ..clients import client_key


def identify_clients(batch: ClientBatch) -> Replies:
    """Say who each client is, which versions it runs, and which tags its node has."""
    said = [filled(ConfigRecord, introduction(context)) for context in batch.contexts]
    batch.records[CLIENT] = said
    return batch.replies()


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
