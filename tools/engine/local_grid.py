"""A Grid that runs the ClientApp in this process: the same apps without the transport.

For tests, sweeps and tables with thousands of clients. What is read-only is shared, not copied:
array records stay numpy, the run config is one dict, a client that keeps nothing has no state. A
client's state changes only when its handler succeeds, because handlers write it last.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from ...client_app.app import answer
from ...client_app.device.context_memory import recall_all, remember_all
from ...client_app.virtual_clients import VirtualClients
from ...core.config import read_config
from ...core.config.reading import SharedConfig
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.selector import Summary
from ...core.wire.broadcast import Broadcast, Messages, ReplyStack
from ...core.wire.changes import TAG
from ...core.wire.flower_private import Run, TaskIdentity, by_wire, empty_run
from ...core.wire.keys import (
    ARRAYS,
    ASK_LOSSES,
    ASK_SUPPORT,
    CONFIG,
    LOSS,
    NUM_EXAMPLES,
    SECONDS,
    SIMILARITY,
    SPARSE,
    STEPS,
    SUMMARY,
    WANTS,
)
from ...core.wire.records import contents, entries, node_of, record_at, records_of
from ...core.wire.sizes import payload_bytes, record_bytes
from ...strategies.federation.virtual_nodes import NumberedNodes
from .simulated_devices import SimulatedDevices

_SERVER = 1  # Flower's node id of the SuperLink
_SECONDS_PER_SAMPLE = 0.001  # of training, where no device is simulated
_FIRST_NODE = 1000
_MOST_ASKED = 10_000  # clients that are asked for their names
_LEFT = 5  # Flower's code for a node that is gone
_PULL_BYTES = (
    64 * 2**20
)  # most model bytes that one pull answers, so that replies can be consumed as they come


class _Contexts(Mapping[int, Context]):
    """Flower's contexts by node, made when a client is first used and kept from then on."""

    def __init__(self, nodes: NumberedNodes, run_config: SharedConfig) -> None:
        self._nodes = nodes
        self._run_config = run_config
        self._made: dict[int, Context] = {}

    def __getitem__(self, node: int) -> Context:
        context = self._made.get(node)
        if context is None:
            if node not in self._nodes:
                raise KeyError(node)
            number, of = node - self._nodes.first, len(self._nodes)
            context = self._made[node] = Context(
                run_id=1,
                node_id=node,
                node_config={"partition-id": number, "num-partitions": of},
                state=RecordDict(),
                run_config=self._run_config,
            )
        return context

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class LocalGrid(Grid):
    """Virtual clients in this process.

    Parameters
    ----------
    num_clients : int
        How many, each with one partition of the data.
    run_config : dict
        Flower's flat run config, shared by all.
    check_wire : bool (default: False)
        Serialise and read back every message and reply, as a real transport would.
    devices : SimulatedDevices, optional
        How fast clients are, and when they are online. Answers then arrive in the order of their
        simulated times, and a client that leaves before it is done answers with an error.
    """

    def __init__(
        self,
        num_clients: int,
        run_config: dict[str, Any],
        *,
        check_wire: bool = False,
        devices: SimulatedDevices | None = None,
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, _SERVER, 1
        self._run: Run = empty_run()
        self.check_wire = check_wire
        self.devices = devices
        self.num_partitions = num_clients  # of the data: one per client, online or not
        self.durations: dict[str, float] = {}  # simulated seconds of answers, by message
        everyone = NumberedNodes(_FIRST_NODE, range(num_clients))
        self.contexts = _Contexts(everyone, SharedConfig(run_config))
        # Clients are asked for their names as on any other grid, unless that would take minutes.
        self.numbered = everyone if num_clients > _MOST_ASKED else None
        self._pending: dict[str, Message | Broadcast] = {}
        self._ids = count(1)
        self._stateful: set[int] = set()  # nodes that keep something
        self._model_bytes = 0  # of the last model that was sent

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run, one and the same."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message (Flower's deprecated way, part of its interface)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the virtual clients that are online."""
        if self.devices is None:
            return list(self.contexts) if self.numbered is None else self.numbered
        return [_FIRST_NODE + client for client in self.devices.present()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages; the work is done when replies are pulled."""
        if isinstance(messages, Broadcast) and messages.whole and not self.check_wire:
            messages.ids = [str(next(self._ids)) for _ in messages.nodes]
            self._pending |= dict.fromkeys(messages.ids, messages)
            return messages.ids
        ids = []
        for message in messages:
            message_id = str(next(self._ids))
            # The SuperLink's task; there is no setter.
            message.metadata.__dict__["_message_id"] = message_id
            self._pending[message_id] = by_wire(message) if self.check_wire else message
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer the next of the pending messages, as many of one kind as fit one pull."""
        waiting = [i for i in message_ids if i in self._pending]
        whole = self._whole(waiting)
        if whole is not None:
            for message_id in waiting:
                del self._pending[message_id]
            return self._answers(whole.kind, whole)
        batch: list[Message] = []
        sizes: dict[int, int] = {}  # of contents, which most messages share
        size, kind = 0, ""
        for message_id in waiting:
            message = self._waiting(message_id)
            content = message.content
            if id(content) not in sizes:
                sizes[id(content)] = self._answer_bytes(content)
            size += sizes[id(content)]
            full = size > _PULL_BYTES and self.devices is None  # who is first is known at the end
            if batch and (full or _kind(message) != kind):
                break
            batch.append(message)
            kind = kind or _kind(message)
        for message_id in waiting[: len(batch)]:
            del self._pending[message_id]
        return self._answers(kind, batch) if batch else []

    def _answer_bytes(self, content: RecordDict) -> int:
        """Return about how large an answer is: as the models of the message, sent or only named."""
        if ARRAYS in entries(content):
            self._model_bytes = record_bytes(entries(content)[ARRAYS])
        config = record_at(content, CONFIG, ConfigRecord)
        named = ARRAYS not in entries(content) and config is not None and TAG in config
        sent = sum(map(record_bytes, records_of(content, ArrayRecord)))
        return sent + (self._model_bytes if named else 0)

    def _waiting(self, message_id: str) -> Message:
        """Return a message that was not answered yet."""
        message = self._pending[message_id]
        if not isinstance(message, Broadcast):
            return message
        single = dict(zip(message.ids, message, strict=True))
        self._pending |= {i: each for i, each in single.items() if i in self._pending}
        return single[message_id]

    def _whole(self, waiting: list[str]) -> Broadcast | None:
        """Return the broadcast that the waiting messages are, if it can be answered as one."""
        first = self._pending[waiting[0]] if waiting else None
        if not isinstance(first, Broadcast) or not first.whole or first.ids != waiting:
            return None
        size = sum(map(record_bytes, records_of(first.content, ArrayRecord)))
        return first if self.devices is None and size * len(first) <= _PULL_BYTES else None

    def _answers(self, kind: str, batch: Messages) -> Iterable[Message]:
        """Let clients answer messages of one kind."""
        nodes = batch.nodes if isinstance(batch, Broadcast) else [node_of(m) for m in batch]
        clients = VirtualClients(nodes, _FIRST_NODE, self.contexts)
        replies = answer(kind, batch, clients)
        looked_at = clients.looked_at.items()
        self._stateful.update(node for node, context in looked_at if entries(context.state))
        if isinstance(replies, ReplyStack) and replies.whole:
            examples = replies.metrics[NUM_EXAMPLES]
            replies.metrics[SECONDS] = [_SECONDS_PER_SAMPLE * float(n) for n in examples]
            return replies
        for reply in replies:
            _put_seconds(reply)
        if self.devices is not None:
            replies = self._as_they_arrive(self.devices, list(batch), list(replies))
        return [by_wire(reply) for reply in replies] if self.check_wire else replies

    def _as_they_arrive(
        self, devices: SimulatedDevices, messages: list[Message], replies: list[Message]
    ) -> list[Message]:
        """Return replies in the order of their simulated times; who left answers with an error."""
        clients = [message.metadata.dst_node_id - _FIRST_NODE for message in messages]
        down = [payload_bytes(message.content) for message in messages]
        up = [0 if reply.has_error() else payload_bytes(reply.content) for reply in replies]
        samples = [self._samples(m, reply) for m, reply in zip(messages, replies, strict=True)]
        seconds = devices.seconds(clients, samples, down, up)
        arrived = []
        for i in sorted(range(len(replies)), key=lambda i: seconds[i]):
            stays = devices.seconds_left(clients[i])
            self.durations[messages[i].metadata.message_id] = min(seconds[i], stays)
            _put_seconds(replies[i], seconds[i])
            left = Message(Error(_LEFT, "left before it was done"), reply_to=messages[i])
            arrived.append(replies[i] if seconds[i] <= stays else left)
        return arrived

    def _samples(self, message: Message, reply: Message) -> int:
        """Return how many samples a client trained on for its answer, epochs included.

        A loss takes a forward pass, a third of a training; a similarity takes the training of a
        few mini-batches. A support takes the gradients of all samples, after a training where it
        is known only then.
        """
        if reply.has_error():
            return 0
        metrics = records_of(reply.content, MetricRecord)
        examples = float(str(metrics[0].get(NUM_EXAMPLES, 0))) if metrics else 0.0
        if _kind(message) == ASK_LOSSES:
            return round(examples * len(records_of(message.content, ArrayRecord)) / 3)
        config = read_config(next(iter(self.contexts.values())).run_config)
        asked = record_at(message.content, CONFIG, ConfigRecord)
        wants = "" if asked is None else str(asked.get(WANTS, ""))
        if _kind(message) == SUMMARY:
            batches = config[Summary].batches * config.batch_size
            return {LOSS: round(examples / 3), SIMILARITY: batches}.get(wants, 0)
        if _kind(message) == ASK_SUPPORT and ARRAYS in message.content:
            teller = load(methods("similarity")[config.similarity].hook)(config)
            passes: int = config.local_epochs * teller.trains + teller.passes
            return round(examples * passes)
        if ARRAYS not in reply.content and SPARSE not in reply.content:
            return 0  # an answer without a model took almost no training
        steps = 0 if asked is None else int(str(asked.get(STEPS, 0)))
        steps = steps or config.local_steps
        return steps * config.batch_size or round(examples * config.local_epochs)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Answer all messages; nobody is ever late here."""
        ids = list(self.push_messages(messages))
        replies: list[Message] = []
        while len(replies) < len(ids):
            replies.extend(self.pull_messages(ids))
        return replies

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the clients that keep any: on a device the client keeps its own."""
        states = {str(node): recall_all(self.contexts[node]) for node in sorted(self._stateful)}
        return states if self.devices is None else states | {"": self.devices.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned; other clients keep nothing."""
        if self.devices is not None and "" in state:
            self.devices.load_state_dict(state.pop(""))
        for node in self._stateful:
            self.contexts[node].state.clear()
        self._stateful.clear()
        for name, sections in state.items():
            remember_all(self.contexts[int(name)], sections)
            self._stateful.add(int(name))


def _put_seconds(reply: Message, seconds: float | None = None) -> None:
    """Put seconds that repeat in place of measured ones, where a reply says how long it took."""
    if reply.has_error():
        return
    for record in contents(reply).values():
        if type(record) is MetricRecord:
            told = entries(record)
            if SECONDS in told:
                by_size = _SECONDS_PER_SAMPLE * float(told.get(NUM_EXAMPLES, 0))
                told[SECONDS] = by_size if seconds is None else seconds
            return  # there is one, or the others are not read


def _kind(message: Message) -> str:
    return message.__dict__["_metadata"].__dict__["_message_type"]  # type: ignore[no-any-return]
