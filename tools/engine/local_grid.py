"""A Grid that runs the ClientApp in this process: the same apps without the transport."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from flwr.app import ArrayRecord, Context, Error, Message
from flwr.clientapp import ClientApp

from ...client_app.app import answer
from ...client_app.clients import VirtualClients, VirtualContext
from ...client_app.device.state import recall_all, remember_all
from ...core.config import RunConfig
from ...core.config.reading import SharedConfig
from ...core.wire.arrays import record_bytes
from ...core.wire.changes import TAG
from ...core.wire.delivery import Delivery
from ...core.wire.flower_private import Run, TaskIdentity, by_wire, empty_run
from ...core.wire.keys import ARRAYS, NUM_EXAMPLES, SECONDS
from ...core.wire.replies import Replies
from ...core.wire.requests import Requests
from ...strategies.federation.clock import ClockedGrid
from ...strategies.federation.grids import NumberedNodes
from .simulated_transport import SimulatedDevices, SimulatedTransport, simulated_devices

_SERVER = 1  # Flower's node id of the SuperLink
_SECONDS_PER_SAMPLE = 0.001  # of training, where no device is simulated
_FIRST_NODE = 1000
_MOST_ASKED = 10_000  # clients that are asked for their names
_PULL_BYTES = 64 * 2**20  # of models that one pull answers: replies are consumed as they come


class _Contexts(Mapping[int, Context]):
    """Flower's contexts by node, made when a client is first used and kept from then on."""

    def __init__(self, nodes: NumberedNodes, run_config: SharedConfig) -> None:
        self._nodes = nodes
        self._run_config = run_config
        self._made: dict[int, VirtualContext] = {}
        self.changed: set[int] = set()  # nodes that keep something

    def __getitem__(self, node: int) -> Context:
        context = self._made.get(node)
        if context is None:
            if node not in self._nodes:
                raise KeyError(node)
            number, of = node - self._nodes.first, len(self._nodes)
            context = VirtualContext(node, number, of, self._run_config, self.changed)
            self._made[node] = context
        return context

    def forget(self) -> None:
        """Let clients keep nothing."""
        for context in self._made.values():
            context.memory.clear()
        self.changed.clear()

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class LocalGrid(ClockedGrid):
    """Virtual clients in this process; `check_wire` serialises messages, `devices` delay them."""

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
        everyone = NumberedNodes(_FIRST_NODE, range(num_clients))
        self.contexts = _Contexts(everyone, SharedConfig(run_config))
        # Clients are asked for their names as on any other grid, unless that would take minutes.
        self.numbered = everyone if num_clients > _MOST_ASKED else None
        self.transport = SimulatedTransport(
            devices or SimulatedDevices(num_clients), _FIRST_NODE, run_config
        )
        self.clock = self.transport.clock
        self._pending: dict[str, tuple[Requests, int]] = {}  # a table and a row of it
        self._sent = 0  # messages so far: their ids count up
        self._states: dict[str, Any] = {}  # what clients kept when a checkpoint last asked
        self._model_bytes = 0  # of the last model that was sent

    @classmethod
    def of_run(cls, config: RunConfig, run_config: dict[str, Any]) -> Self:
        """Return the grid that a config describes."""
        wire, devices = config.local.check_wire, simulated_devices(config)
        return cls(config.num_clients, run_config, check_wire=wire, devices=devices)

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run, one and the same."""
        return self._run

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the virtual clients that are online."""
        if self.devices is None:
            return list(self.contexts) if self.numbered is None else self.numbered
        return [_FIRST_NODE + client for client in self.devices.present()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages; the work is done when replies are pulled."""
        made = messages if isinstance(messages, Requests) else list(messages)
        ids = [str(self._sent + 1 + row) for row in range(len(made))]
        self._sent += len(ids)
        if isinstance(made, Requests):
            made.ids = ids
            self._keep(made, ids)
            return ids
        kinds: dict[str, list[Message]] = defaultdict(list)
        for message, message_id in zip(made, ids, strict=True):
            # The SuperLink's task; there is no setter.
            message.metadata.__dict__["_message_id"] = message_id
            kinds[message.metadata.message_type].append(message)
        for part in kinds.values():
            self._keep(part, [message.metadata.message_id for message in part])
        return ids

    def _keep(self, messages: Sequence[Message], ids: list[str]) -> None:
        requests = Requests.of(map(by_wire, messages) if self.check_wire else messages)
        if requests is not None:
            requests.ids = ids
            self._pending |= {each: (requests, row) for row, each in enumerate(ids)}

    def pending_table(self, message_id: str) -> Requests | None:
        """Return the table that a message which waits for its answer is of."""
        return self._pending.get(message_id, (None, 0))[0]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer pending messages, those of a table that fit one pull; return what has arrived."""
        ids = list(message_ids)
        if self.devices is None:
            return self._answered([i for i in ids if i in self._pending])
        while self._pending:
            waiting = list(self._pending)
            rows = [self._pending[i] for i in waiting]
            table = rows[0][0]
            sent = table.select([row for of, row in rows if of is table])
            self.transport.carry(sent, self._answered(waiting, all_of_it=True))
        return self.transport.arrived(ids)

    def _answered(self, waiting: list[str], *, all_of_it: bool = False) -> Delivery:
        """Let clients answer messages of one table, the first that there is."""
        if not waiting:
            return Delivery([], [])
        table = self._pending[waiting[0]][0]
        rows = [row for of, row in map(self._pending.__getitem__, waiting) if of is table]
        rows = rows if all_of_it else rows[: max(1, _PULL_BYTES // self._answer_bytes(table))]
        taken = set(rows)
        for message_id in waiting:
            of, row = self._pending[message_id]
            if of is table and row in taken:
                del self._pending[message_id]
        everyone = rows == list(range(len(table)))
        return self._answers(table if everyone else table.select(rows))

    def _answer_bytes(self, requests: Requests) -> int:
        """Return about how large an answer is: as the model of the message, sent or only named."""
        model = requests.record(ARRAYS, 0)
        if isinstance(model, ArrayRecord):
            self._model_bytes = record_bytes(model)
            return max(1, self._model_bytes)
        return max(1, self._model_bytes) if TAG in requests.config else 1

    def _answers(self, requests: Requests) -> Delivery:
        arrivals = answer(requests, VirtualClients(requests.nodes, _FIRST_NODE, self.contexts))
        for table in arrivals.tables:
            _put_seconds(table)
        if not self.check_wire:
            return arrivals
        return Delivery.of([by_wire(reply) for reply in arrivals])

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Answer all messages; nobody is ever late here."""
        ids = list(self.push_messages(messages))
        tables: list[Replies] = []
        errors: list[Message] = []
        while sum(map(len, tables)) + len(errors) < len(ids):
            arrivals = Delivery.of(self.pull_messages(ids))
            tables += arrivals.tables
            errors += arrivals.errors
            if self.devices is not None:
                self.clock.wait(float("inf"))
        return Delivery(tables, errors)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the clients that keep any, and what is on its way."""
        for node in self.contexts.changed:
            self._states[str(node)] = recall_all(self.contexts[node])
        self.contexts.changed.clear()
        sent = {"messages": self._sent, **self.transport.state_dict(self._pending)}
        return {**self._states, "": sent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; other clients keep nothing."""
        state = dict(state)
        sent = state.pop("", {})
        self._sent = int(sent.get("messages", 0))
        self._pending = self.transport.load_state_dict(sent)
        self.contexts.forget()
        self._states = {}
        for name, sections in state.items():
            remember_all(self.contexts[int(name)], sections)


def _put_seconds(replies: Replies) -> None:
    """Put seconds that repeat in place of measured ones, where replies say how long they took."""
    if SECONDS in replies.metrics:
        examples = replies.metrics.get(NUM_EXAMPLES, [0] * len(replies))
        seconds = [_SECONDS_PER_SAMPLE * float(number or 0) for number in examples]
        replies.set_metric(SECONDS, seconds)


_RAISED = 2  # Flower's code for an exception in a ClientApp


class AppGrid(LocalGrid):
    """A grid for ``strategy.start`` whose clients are an app, called one after the other.

    Each client knows its ``partition-id`` and ``num-partitions``. Messages and replies are
    serialised as on a real grid, and an exception is an error reply.
    """

    def __init__(
        self, app: ClientApp, num_clients: int, run_config: dict[str, Any] | None = None
    ) -> None:
        super().__init__(num_clients, run_config or {}, check_wire=True)
        self.app = app

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Answer all that is waiting."""
        waiting = [self._pending.pop(i) for i in message_ids if i in self._pending]
        return [by_wire(self.answer(requests[row])) for requests, row in waiting]

    def answer(self, message: Message) -> Message:
        """Return what the app makes of a message."""
        context = self.contexts[message.metadata.dst_node_id]
        try:
            return self.app(message, context)
        except Exception as error:  # whatever the app raises
            return Message(Error(_RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
