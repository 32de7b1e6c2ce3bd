"""How a question reaches a client.

Forager's own ClientApp has a handler for every kind of question. Any other app has a
train function with :func:`forager.client_mod` around it, and Flower hands a mod only messages of
kinds that the app has a function for. There a question is a training message with a record that
says what it asks.
"""

from typing import Literal

from flwr.app import ConfigRecord, Message, RecordDict

from ...core.wire.keys import KIND, QUESTION
from ...core.wire.records import entries, filled

Route = Literal["query", "train"]


def question(content: RecordDict, node: int, kind: str, route: Route) -> Message:
    """Return the message that asks a node."""
    if route == "query":
        return Message(content, dst_node_id=node, message_type=kind)
    asked = {**entries(content), QUESTION: ConfigRecord({KIND: kind})}
    return Message(filled(RecordDict, asked), dst_node_id=node, message_type="train")
