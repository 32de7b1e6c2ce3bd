"""Clients that speak to a SuperLink as SuperNodes do, many in one process.

A SuperNode starts a Python process for every message, which this machine could not do for fifty at
once. Here the same ClientApp answers in a thread; what goes over the wire is the same: gRPC up to
Flower 1.39, HTTP from 1.40 on.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from flwr.app import Context, Message, RecordDict

from ..client_app.app import answer_one
from ..core.wire.flower_private import TaskIdentity, needed
from ..core.wire.versions import nodes_speak

_OBJECTS = "flwr.supercore.inflatable.inflatable_object"
_TRANSFER = "flwr.supercore.inflatable.inflatable_utils"
IDLE_SECONDS = 3.0  # between two looks for a message, as in Flower's SuperNode


def node_connection(address: str) -> Any:
    """Connect to a SuperLink as a SuperNode does: by gRPC up to 1.39, by HTTP from 1.40 on."""
    if nodes_speak() == "gRPC":
        retry = needed("flwr.supercore.retry", "make_simple_grpc_retry_invoker")()
        by_grpc = needed("flwr.client.grpc_rere_client.connection", "grpc_request_response")
        return by_grpc(address, insecure=True, retry_invoker=retry)
    by_http = needed("flwr.supernode.fleet_http_connection", "http_request_response")
    return by_http(address, insecure=True)


class LightClient(threading.Thread):
    """One client: connects, looks for messages, answers them, until it is told to stop.

    Parameters
    ----------
    address : str
        The SuperLink's Fleet API.
    node_config : dict
        What ``--node-config`` would say.
    lock : Lock
        Held while answering: the ClientApp is not made for threads.
    idle : float (default: 3.0)
        Seconds between looks.
    """

    def __init__(
        self,
        address: str,
        node_config: dict[str, Any],
        lock: threading.Lock,
        idle: float = IDLE_SECONDS,
    ) -> None:
        super().__init__(daemon=True)
        self.address, self.node_config, self.lock, self.idle = address, node_config, lock, idle
        self.answered = 0
        self.error: BaseException | None = None
        self._told_to_stop = threading.Event()
        self._contexts: dict[int, Context] = {}

    def stop(self) -> None:
        """Leave after the message that is being answered."""
        self._told_to_stop.set()

    def run(self) -> None:
        """Live."""
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        try:
            with node_connection(self.address) as connection:
                while not self._told_to_stop.is_set():
                    if not self._answer_next(*connection):
                        self._told_to_stop.wait(self.idle)
        except BaseException as error:  # told to whoever waits for this client
            self.error = error

    def _answer_next(
        self,
        node_id: int,
        receive: Callable[..., Any],
        send: Callable[..., Any],
        get_run: Callable[..., Any],
        get_fab: Callable[..., Any],
        pull_object: Callable[..., Any],
        push_object: Callable[..., Any],
        confirm: Callable[..., Any],
    ) -> bool:
        """Answer the next message; False if there is none."""
        received = receive()
        if received is None:
            return False
        bare, tree = received
        run_id = bare.metadata.run_id
        message = needed(_TRANSFER, "pull_and_inflate_object_from_tree")(
            tree,
            lambda object_id: pull_object(run_id, object_id),
            lambda object_id: confirm(run_id, object_id),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id
        if run_id not in self._contexts:
            run = get_run(run_id)
            fused = needed("flwr.common.config", "get_fused_config_from_fab")
            config = fused(get_fab(run.fab_hash, run_id).content, run)
            self._contexts[run_id] = Context(
                run_id, node_id, self.node_config, RecordDict(), config
            )
        started = time.monotonic()
        with self.lock:
            reply = answer_one(message, self._contexts[run_id])
        self._send(reply, time.monotonic() - started, send, push_object)
        self.answered += 1
        return True

    def _send(
        self, reply: Message, seconds: float, send: Callable[..., Any], push: Callable[..., Any]
    ) -> None:
        run_id = reply.metadata.run_id
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with needed(_OBJECTS, "no_object_id_recompute")():
            tree = needed(_OBJECTS, "get_object_tree")(reply)
            objects = needed(_OBJECTS, "get_all_nested_objects")(reply)
            wanted, session = send(reply, tree, seconds)
            needed(_TRANSFER, "push_objects")(
                objects,
                lambda object_id, content: push(run_id, session, object_id, content),
                object_ids_to_push=wanted,
            )


def connect(
    address: str, count: int, idle: float = IDLE_SECONDS, **node_config: Any
) -> list[LightClient]:
    """Start this many clients, each with its own partition."""
    lock = threading.Lock()
    clients = [
        LightClient(
            address,
            {"partition-id": i, "num-partitions": count, **node_config},
            lock,
            idle,
        )
        for i in range(count)
    ]
    for client in clients:
        client.start()
    return clients
