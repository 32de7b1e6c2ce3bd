"""Flower's messages and contexts as bytes, in the form in which Flower itself sends them."""

from flwr.app import Context, Message
from flwr.common.serde import (  # there is no public name for these
    context_from_proto,
    context_to_proto,
    message_from_proto,
    message_to_proto,
)
from flwr.proto.message_pb2 import Context as ContextProto
from flwr.proto.message_pb2 import Message as MessageProto


def message_to_bytes(message: Message) -> bytes:
    """Return a message as bytes."""
    return bytes(message_to_proto(message).SerializeToString())


def message_from_bytes(data: bytes) -> Message:
    """Return the message of :func:`message_to_bytes`."""
    return message_from_proto(MessageProto.FromString(data))


def context_to_bytes(context: Context) -> bytes:
    """Return a context as bytes.

    >>> from flwr.app import RecordDict
    >>> context = Context(1, 2, {"client-id": "camera-7"}, RecordDict(), {})
    >>> context_from_bytes(context_to_bytes(context)).node_config
    {'client-id': 'camera-7'}
    """
    return bytes(context_to_proto(context).SerializeToString())


def context_from_bytes(data: bytes) -> Context:
    """Return the context of :func:`context_to_bytes`."""
    return context_from_proto(ContextProto.FromString(data))
