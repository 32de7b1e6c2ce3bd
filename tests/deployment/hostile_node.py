"""A node with a key of its own that speaks Flower's protocol as it likes, over gRPC with TLS."""

import time
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message.message import remove_content_from_message

# Private: what a SuperNode says to the SuperLink has no public interface.
from flwr.client.grpc_rere_client.node_auth_client_interceptor import NodeAuthClientInterceptor
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.proto.message_pb2 import Message as MessageOnWire
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.grpc import create_channel
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionClientInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from forager.core.wire.salt import unsalted

_NAP = 0.2  # seconds between two looks for a message


class HostileNode:
    """Connected under its own key; what it pushes is up to the test.

    Parameters
    ----------
    address : str
        Host and port of the SuperLink's Fleet API.
    credentials : Path
        Folder with the key of an enrolled device and the server's certificate.
    """

    def __init__(self, address: str, credentials: Path) -> None:
        private = load_ssh_private_key((credentials / "key").read_bytes(), None)
        public = private.public_key()
        self._channel = create_channel(
            server_address=address,
            insecure=False,
            root_certificates=(credentials / "ca.crt").read_bytes(),
            interceptors=[
                RuntimeVersionClientInterceptor(component_name="SuperNode"),
                NodeAuthClientInterceptor(private, public),
            ],
        )
        self.stub = FleetStub(self._channel)
        activated = self.stub.ActivateNode(
            ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=1800.0)
        )
        self.node = Node(node_id=activated.node_id)

    def next_message(self, seconds: float) -> Message | None:
        """Return the next message for this node, with its content; None if none comes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pulled = self.stub.PullMessages(PullMessagesRequest(node=self.node))
            if pulled.messages_list:
                return self._filled(pulled.messages_list[0], pulled.message_object_trees[0])
            time.sleep(_NAP)
        return None

    def _filled(self, onwire: MessageOnWire, tree: ObjectTree) -> Message:
        run, found = onwire.metadata.run_id, {}
        for each in iterate_object_tree(tree):
            asked = PullObjectRequest(node=self.node, run_id=run, object_id=each.object_id)
            while not (content := self.stub.PullObject(asked).object_content):
                time.sleep(_NAP)  # the server is still sending it
            found[each.object_id] = content
        message = inflate_object_from_contents(tree.object_id, found)
        message.metadata.__dict__["_message_id"] = tree.object_id
        return unsalted(message)

    def push(self, message: Message, pretend: Message | None = None, *, whole: bool = True) -> bool:
        """Push a message as the SuperLink sees it; return whether it was taken.

        Parameters
        ----------
        message : Message
            Whose metadata the SuperLink compares with what it knows.
        pretend : Message, optional
            What the server finds in the store in its place.
        whole : bool (default: True)
            Whether the contents follow.
        """
        shown = pretend or message
        contents = {name: each.deflate() for name, each in get_all_nested_objects(shown).items()}
        return self.push_objects(message, get_object_tree(shown), contents if whole else {})

    def push_objects(self, message: Message, tree: ObjectTree, contents: dict[str, bytes]) -> bool:
        """Push a message whose object tree and contents are any."""
        message.metadata.__dict__["_message_id"] = tree.object_id
        onwire = message_to_proto(remove_content_from_message(message))
        pushed = self.stub.PushMessages(
            PushMessagesRequest(node=self.node, messages_list=[onwire], message_object_trees=[tree])
        )
        for name in pushed.objects_to_push:
            if name in contents:
                self.stub.PushObject(
                    PushObjectRequest(
                        node=self.node,
                        run_id=message.metadata.run_id,
                        session_id=pushed.session_id,
                        object_id=name,
                        object_content=contents[name],
                    )
                )
        return bool(pushed.objects_to_push)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()
