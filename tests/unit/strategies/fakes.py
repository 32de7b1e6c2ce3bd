"""Clients and a grid that do exactly what a test wants."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from forager.core.log.events import Event
from forager.core.wire import int8, sparse
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.changes import LACKS_BASE, TAG
from forager.core.wire.keys import (
    AFFINITY,
    ARRAYS,
    ASK_AFFINITY,
    CLIENT,
    CLIENT_KEY,
    CONFIG,
    DENSITY,
    IDENTIFY,
    METRICS,
    PAYLOAD,
    ROUND,
    SPARSE,
    VALUES,
    VERSIONS,
)
from forager.core.wire.replies import Replies, Row
from forager.core.wire.requests import Requests
from forager.core.wire.versions import versions
from forager.selectors.cohorts.affinity import Affinity, Feedback
from forager.selectors.cohorts.tree import CohortTree
from forager.server_app.post import Post
from forager.strategies.layers.base import Layer
from numpy.typing import NDArray

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

Arrays = dict[str, NDArray[Any]]
E = TypeVar("E", bound=Event)
L = TypeVar("L", bound=Layer)
# What a client does about a message at the n-th look at it; nothing means "not yet".
Behaviour = Callable[[Message, str, int], list[Message]]


def small_model() -> Arrays:
    """Two float arrays and the counter of a batch normalisation."""
    rng = np.random.default_rng(7)
    return {
        "layer.weight": rng.normal(size=(4, 3)).astype(np.float32),
        "norm.num_batches_tracked": np.array(5, dtype=np.int64),
        "layer.bias": rng.normal(size=3).astype(np.float32),
    }


def trained(arrays: Arrays, key: str, server_round: int) -> Arrays:
    """What an honest client makes of a model: it depends on model, client and round."""
    rng = np.random.default_rng([int(key), server_round])
    result = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            change = rng.normal(scale=0.1, size=array.shape) - 0.1 * array
            result[name] = np.asarray(array + change, dtype=array.dtype)
        else:
            result[name] = np.asarray(array + 1 + int(key), dtype=array.dtype)
    return result


def num_examples(key: str) -> int:
    """An honest client's number of samples."""
    return 10 + 3 * int(key)


def answer(message: Message, content: dict[str, Any]) -> Message:
    """A reply with these records."""
    return Message(RecordDict(content), reply_to=message)


def row_of(reply: Message) -> Row:
    """A reply as the one row of a table."""
    return Row(Replies.of(reply), 0)


def honest_records(message: Message, key: str) -> dict[str, Any]:
    """The records of an honest reply to a train message, dense or sparse as it asks.

    These clients keep no models: if a message comes without one, they say so.
    """
    config: dict[str, Any] = dict(message.content.config_records[CONFIG])
    if ARRAYS not in message.content and TAG in config:
        lacking = MetricRecord({"num-examples": 1, LACKS_BASE: 1})
        return {CLIENT: ConfigRecord({CLIENT_KEY: key}), METRICS: lacking}
    before = from_record(message.content.array_records[ARRAYS])
    after = trained(before, key, int(config[ROUND]))
    records: dict[str, Any] = {
        CLIENT: ConfigRecord({CLIENT_KEY: key}),
        METRICS: MetricRecord(
            {"num-examples": num_examples(key), "train_loss": 1 / (1 + int(key))}
        ),
    }
    if VALUES in config:
        changes = [(after[n] - before[n]).ravel() for n in before if before[n].dtype.kind == "f"]
        flat = np.concatenate(changes).astype(np.float32)
        if DENSITY in config:
            payload = sparse.encode(flat, round(float(config[DENSITY]) * flat.size), config[VALUES])
        else:
            sizes = [change.size for change in changes]
            payload = int8.encode(flat, sizes, np.random.default_rng(int(key)))[0]
        records[SPARSE] = ConfigRecord({PAYLOAD: payload})
    else:
        records[ARRAYS] = to_record(after)
    return records


def affinity(message: Message) -> dict[str, Any]:
    """The request of a client of Auxo that has forgotten all but what it is told now."""
    news, mine = dict(message.content.config_records[AFFINITY]), Affinity()
    names = ("cohort", "reward", "index", "serial")
    feedback: Any = Feedback(*(news[n] for n in names)) if "serial" in news else None  # type: ignore[arg-type]
    leaves: Any = news["leaves"]
    mine.learn(feedback, CohortTree.of_leaves(leaves))
    records = {AFFINITY: ConfigRecord(mine.state_dict())}
    return {METRICS: MetricRecord({"num-examples": 1}), **records}


def honest(message: Message, key: str, look: int = 0) -> list[Message]:
    """Answer every kind of message at once, as a good client does."""
    if message.metadata.message_type == IDENTIFY:
        said = ConfigRecord({CLIENT_KEY: key, VERSIONS: versions()})
        return [answer(message, {CLIENT: said})]
    if message.metadata.message_type == ASK_AFFINITY:
        return [answer(message, {CLIENT: ConfigRecord({CLIENT_KEY: key}), **affinity(message)})]
    if message.metadata.message_type == "evaluate":
        metrics: dict[str, Any] = {
            "num-examples": num_examples(key),
            "accuracy": int(key) / 10,
            "loss": 1.0,
        }
        return [answer(message, {METRICS: MetricRecord(metrics)})]
    return [answer(message, honest_records(message, key))]


def failing(message: Message, key: str, look: int = 0) -> list[Message]:
    """Raise an exception, as Flower reports it."""
    return [Message(Error(2, f"client {key} broke"), reply_to=message)]


def by_superlink(message: Message, code: int = 5) -> Message:
    """An error that the SuperLink makes for a node that is gone: it names itself as the source."""
    reply = Message(Error(code, ""), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = 1
    return reply


class FakeGrid(Grid):
    """Nodes with keys and behaviours; nothing happens until replies are pulled.

    Parameters
    ----------
    keys
        The clients; node ids count up from ``first_node`` in this order.
    behaviours
        What individual clients do when asked to train or evaluate; the others are honest.
    names
        What individual clients do when asked who they are.
    wire
        Whether every message is serialised and read back, as a transport would.
    """

    def __init__(
        self,
        keys: Sequence[str],
        behaviours: Mapping[str, Behaviour] | None = None,
        *,
        names: Mapping[str, Behaviour] | None = None,
        first_node: int = 500,
        wire: bool = False,
    ) -> None:
        self.nodes = {first_node + i: key for i, key in enumerate(keys)}
        self.behaviours = behaviours or {}
        self.names = names or {}
        self.wire = wire
        self.sent: list[Message] = []
        self._pending: dict[str, tuple[Message, int]] = {}
        self._run = Run.create_empty(1)

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{len(self.sent)}"
            self.sent.append(message)
            self._pending[message.metadata.message_id] = (self._passed(message), 0)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        arrived: list[Message] = []
        for message_id in [i for i in message_ids if i in self._pending]:
            message, look = self._pending[message_id]
            key = self.nodes[message.metadata.dst_node_id]
            asked_who = message.metadata.message_type == IDENTIFY
            behaviours = self.names if asked_who else self.behaviours
            replies = behaviours.get(key, honest)(message, key, look)
            self._pending[message_id] = (message, look + 1)
            if replies:
                del self._pending[message_id]
                arrived.extend(self._passed(reply) for reply in replies)
        return arrived

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        ids = list(self.push_messages(messages))
        return [reply for _ in range(3) for reply in self.pull_messages(ids)]

    def of_kind(self, kind: str) -> list[Message]:
        """The messages of one kind that were sent."""
        return [message for message in self.sent if message.metadata.message_type == kind]

    def _passed(self, message: Message) -> Message:
        return message_from_proto(message_to_proto(message)) if self.wire else message


class Notes:
    """A journal that a test can read."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if type(event) is kind]


def listening_to(layer: Layer) -> Notes:
    """A journal of all that happens to a layer and to those that it shares clients with."""
    layer.federation.journal = notes = Notes()
    return notes


def inside(strategy: Strategy, kind: type[L]) -> L:
    """The layer of a stack that is of this kind."""
    while not isinstance(strategy, kind):
        strategy = strategy.inner  # type: ignore[attr-defined]
    return strategy


def never(message: Message, key: str, look: int = 0) -> list[Message]:
    """Never answer."""
    return []


def one_round(
    strategy: Strategy, arrays: ArrayRecord, grid: Grid, server_round: int = 1
) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Configure, exchange and aggregate; in a fixed order, as sums depend on it."""
    messages = sorted(
        strategy.configure_train(server_round, arrays, ConfigRecord(), grid),
        key=lambda message: message.metadata.dst_node_id,
    )
    return strategy.aggregate_train(server_round, grid.send_and_receive(messages))


def exchanged(post: Post, messages: Iterable[Message], **settings: Any) -> list[Message]:
    """Exchange messages, as a round does, and return the replies."""
    tables = post.exchange(Requests.of(messages), **settings)
    return [reply for table in tables for reply in table]


def rounds(strategy: Strategy, arrays: ArrayRecord, grid: Grid, numbers: range) -> ArrayRecord:
    """Several rounds, each starting from the model of the one before."""
    for number in numbers:
        result, _ = one_round(strategy, arrays, grid, number)
        assert result is not None
        arrays = result
    return arrays


def assert_same(left: ArrayRecord | None, right: ArrayRecord | None, **tolerance: Any) -> None:
    """Same names, dtypes, shapes and values, exactly or within a tolerance."""
    assert left is not None
    assert right is not None
    assert list(left) == list(right)
    for name, array in from_record(left).items():
        other = from_record(right)[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        if tolerance:
            np.testing.assert_allclose(array, other, err_msg=name, **tolerance)
        else:
            np.testing.assert_array_equal(array, other, err_msg=name)
