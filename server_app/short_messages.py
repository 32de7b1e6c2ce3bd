"""Training messages without the model, for clients that hold it from a question.

Layers know nothing of this: what they remember having sent is whole. A client that has lost the
model says so, and is then sent the whole message.
"""

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from ..core.wire.arrays import from_record
from ..core.wire.broadcast import Messages
from ..core.wire.changes import TAG, tag_of
from ..core.wire.keys import ARRAYS, CONFIG
from ..core.wire.records import entries, filled, record_at
from ..core.wire.sizes import record_bytes
from ..strategies.federation import Federation


def in_short(
    messages: Messages, federation: Federation
) -> tuple[Messages, dict[int, Message], int]:
    """Return what to send, the whole messages of those that are sent less, and the bytes spared."""
    if not federation.anybody_holds():
        return messages, {}, 0
    tags: dict[int, str] = {}  # of records, most of which all messages share
    whole: dict[int, Message] = {}
    to_send, spared = [], 0
    for message in messages:
        node = message.metadata.dst_node_id
        held = federation.holds(node)
        model = record_at(message.content, ARRAYS, ArrayRecord)
        config = record_at(message.content, CONFIG, ConfigRecord)
        if not held or model is None or config is None:
            to_send.append(message)
            continue
        if id(model) not in tags:
            tags[id(model)] = tag_of(from_record(model))
        if tags[id(model)] == held:
            to_send.append(_without_model(message, config, held))
            whole[node] = message
            spared += record_bytes(model)
        else:
            to_send.append(message)
    return to_send, whole, spared


def _without_model(message: Message, config: ConfigRecord, tag: str) -> Message:
    """Return another message to the same node that names the model instead of carrying it."""
    content = {name: r for name, r in entries(message.content).items() if name != ARRAYS}
    content[CONFIG] = filled(ConfigRecord, {**entries(config), TAG: tag})
    return Message(
        filled(RecordDict, content),
        dst_node_id=message.metadata.dst_node_id,
        message_type=message.metadata.message_type,
        group_id=message.metadata.group_id,
    )
