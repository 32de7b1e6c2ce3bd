"""A round of clients as one table of requests and one of replies: the same as one by one."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from forager.client_app import app
from forager.client_app.batch import ClientBatch
from forager.client_app.clients import VirtualClients, client_keys
from forager.core.config import default_config, read_config
from forager.core.log.events import Contributed, Quarantined
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, sizes_of, to_record
from forager.core.wire.delivery import Delivery
from forager.core.wire.keys import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES
from forager.core.wire.replies import Replies, ReplyStream
from forager.core.wire.requests import Requests
from forager.server_app.app import build_loop
from forager.server_app.loop import Loop
from forager.strategies.aggregation.running_mean import RunningMean, mean_of
from forager.strategies.federation.federation import Federation
from forager.strategies.federation.roster import Roster
from forager.strategies.layers.base import Layer
from forager.strategies.layers.quarantine import QuarantineLayer
from forager.tools.engine.local_grid import LocalGrid

KEYS: dict[str, Any] = {"model": "softmax", "num-clients": 6, "num-server-rounds": 3}


def sent_to_all(grid: LocalGrid) -> Requests:
    model = load_task(read_config(KEYS).task_spec()).build_model()
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    content = RecordDict({ARRAYS: to_record(arrays), CONFIG: ConfigRecord({"server-round": 1})})
    nodes = list(grid.get_node_ids())
    return Requests(Message(content, dst_node_id=nodes[0], message_type="train"), nodes)


def replies_of(grid: LocalGrid, sent: Iterable[Message]) -> Delivery:
    return Delivery.of(grid.pull_messages(list(grid.push_messages(sent))))


def table_of() -> Replies:
    grid = LocalGrid(6, read_config(KEYS).flat())
    arrived = replies_of(grid, sent_to_all(grid))
    (table,) = arrived.tables
    assert not arrived.errors
    return table


def rows_of(table: Replies) -> list[Replies]:
    return [table.select([row]) for row in range(len(table))]


def plain(message: Message) -> tuple[Any, ...]:
    """All that a layer can see of a reply."""
    content, metadata = message.content, message.metadata
    arrays = {name: a.tobytes() for name, a in from_record(content[ARRAYS]).items()}  # type: ignore[arg-type]
    others = {name: dict(record) for name, record in content.items() if name != ARRAYS}  # type: ignore[call-overload]
    answers = (metadata.src_node_id, metadata.reply_to_message_id, metadata.message_type)
    return arrays, others, answers


def test_replies_of_a_table_are_those_to_single_messages() -> None:
    together, apart = (LocalGrid(6, read_config(KEYS).flat()) for _ in range(2))
    one_by_one = [reply for message in sent_to_all(apart) for reply in replies_of(apart, [message])]
    table = replies_of(together, sent_to_all(together))
    assert [plain(reply) for reply in table] == [plain(reply) for reply in one_by_one]


def test_bytes_are_those_of_the_replies() -> None:
    table = table_of()
    assert table.row_bytes() == [sizes_of(reply.content)[0] for reply in table]


def test_ids_are_those_of_the_table_once_it_was_sent() -> None:
    grid = LocalGrid(3, read_config(KEYS).flat())
    sent = sent_to_all(grid)
    ids = list(grid.push_messages(sent))
    assert [message.metadata.message_id for message in sent] == ids
    assert len(list(grid.pull_messages(ids[:1]))) == 1  # it can be taken apart
    assert len(list(grid.pull_messages(ids))) == 2
    assert not list(grid.pull_messages(ids))


@pytest.mark.parametrize(
    "keys",
    [{"local.trainer": "serial"}, {"client-selector": "oort"}, {"objective": "scaffold"}],
    ids=str,
)
def test_all_kinds_of_clients_answer_a_table(keys: dict[str, Any]) -> None:
    grid = LocalGrid(6, read_config({**KEYS, **keys}).flat())
    arrived = replies_of(grid, sent_to_all(grid))
    assert not arrived.errors
    nodes = [node for table in arrived.tables for node in table.nodes]
    assert nodes == list(grid.get_node_ids())


def test_means_of_a_table_and_of_its_rows_are_the_same_to_the_last_bit() -> None:
    table = table_of()
    by_wire = [Replies.of(reply) for reply in table]
    means = [mean_of(tables) for tables in ([table], rows_of(table), by_wire)]
    for mean in means[1:]:
        assert means[0] is not None
        assert mean is not None
        assert dict(mean.content[METRICS]) == dict(means[0].content[METRICS])  # type: ignore[call-overload]
        np.testing.assert_array_equal(
            *(from_record(m.content[ARRAYS])["1.weight"] for m in (mean, means[0]))  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("shape", [(3,), (), (1,), (700, 3)])
def test_a_sum_of_a_stack_is_that_of_its_rows(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    stack = rng.normal(size=(150, *shape)).astype(np.float32)
    weights = rng.integers(1, 100, 150).tolist()
    losses = rng.random(150).tolist()
    rows, whole = RunningMean(), RunningMean()
    for row, loss, weight in zip(stack, losses, weights, strict=True):
        rows.add({"w": np.asarray(row)}, {"loss": loss}, weight=weight)
    for part in (slice(0, 60), slice(60, 150)):
        whole.add_stack({"w": stack[part]}, {"loss": losses[part]}, weights[part])
    np.testing.assert_array_equal(whole.arrays["w"], rows.arrays["w"])
    assert (whole.metrics, whole.weight) == (rows.metrics, rows.weight)


class Sum(Layer):
    """The end of a stack of layers: it keeps what it was given."""

    def __init__(self) -> None:
        super().__init__(None, Federation())  # type: ignore[arg-type]
        self.given: list[Replies] = []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        assert isinstance(replies, ReplyStream)
        self.given = list(replies.tables)
        return None, None


def checked(*tables: Replies, **settings: Any) -> tuple[list[Replies], list[Any], QuarantineLayer]:
    """What the quarantine lets through, and what it says."""
    inside = Sum()
    layer = QuarantineLayer(inside, **settings)
    told: list[Any] = []
    layer.federation.journal = told.append
    layer.federation.assign(1, sent_to_all(LocalGrid(6, KEYS)))
    layer.aggregate_train(1, ReplyStream(list(tables)))
    return inside.given, [event for event in told if not isinstance(event, Contributed)], layer


def test_the_quarantine_does_not_take_sound_replies_apart() -> None:
    table = table_of()
    passed, told, _ = checked(table)
    assert passed[0] is table
    assert told == []


def test_the_quarantine_learns_the_same_norms_from_a_table_and_from_its_rows() -> None:
    (_, _, whole), (_, _, apart) = checked(table_of()), checked(*rows_of(table_of()))
    assert whole.own_state() == apart.own_state()


@pytest.mark.parametrize("fault", ["nan", "huge", "count", "loss"])
def test_the_quarantine_sets_aside_one_of_a_table(fault: str) -> None:
    table = table_of()
    if fault == "nan":
        table.arrays["1.bias"][2, 0] = np.nan
    elif fault == "huge":
        table.arrays["1.weight"][2] += 1e6
    elif fault == "count":
        table.metrics[NUM_EXAMPLES] = [60, 60, -1, 60, 60, 60]
    else:
        table.metrics["train_loss"] = [1.0, 1.0, np.inf, 1.0, 1.0, 1.0]
    (passed,), told, _ = checked(table)
    assert passed.nodes == [1000, 1001, 1003, 1004, 1005]
    assert [(type(event), event.client) for event in told] == [(Quarantined, Roster.nameless(1002))]


def test_a_weight_limit_holds_in_a_table() -> None:
    table = table_of()
    table.metrics[NUM_EXAMPLES] = [60, 60, 600, 60, 60, 60]
    (passed,), told, _ = checked(table, weight_factor=2.0, count_factor=20.0)
    assert passed.metrics[NUM_EXAMPLES] == [60, 60, 120.0, 60, 60, 60]
    assert [event.part for event in told] == ["large clients"]


class Apart(LocalGrid):
    """A grid that takes messages apart, as one that changes some of them would."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return super().push_messages(list(messages))


def loop_on(kind: type[LocalGrid], folder: Path, **keys: Any) -> tuple[Loop, Path]:
    config = {**default_config(), **KEYS, "output-dir": str(folder), "report": False, **keys}
    run, loop = build_loop(kind(6, config), config)
    return loop, run.path


def log_of(folder: Path) -> list[Any]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    timed = ("time", "seconds")
    return [{k: v for k, v in json.loads(x).items() if k not in timed} for x in lines[1:]]


@pytest.mark.parametrize("keys", [{}, {"aggregator": "fedyogi"}, {"weighting": "uniform"}], ids=str)
def test_a_run_is_the_same_either_way(keys: dict[str, Any], tmp_path: Path) -> None:
    together, log = loop_on(LocalGrid, tmp_path / "together", **keys)
    apart, other_log = loop_on(Apart, tmp_path / "apart", **keys)
    together.run()
    apart.run()
    assert log_of(log) == log_of(other_log)
    for name, array in from_record(together.arrays).items():
        np.testing.assert_array_equal(array, from_record(apart.arrays)[name])


def test_a_whole_round_makes_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, _ = loop_on(LocalGrid, tmp_path)
    loop.play_round()

    def refuse(*_: Any) -> list[Message]:
        raise AssertionError("a message was made")

    monkeypatch.setattr(Requests, "_make", refuse)
    monkeypatch.setattr(Replies, "_make", refuse)
    loop.play_round()
    assert loop.round == 2


def test_whoever_asks_the_post_for_messages_gets_them(tmp_path: Path) -> None:
    loop, _ = loop_on(LocalGrid, tmp_path)
    loop.federation.nodes(loop.grid)
    assert isinstance(loop.grid.grid, LocalGrid)
    replies = list(loop.grid.send_and_receive(sent_to_all(loop.grid.grid)))
    assert [reply.metadata.src_node_id for reply in replies] == list(range(1000, 1006))


def test_a_handler_that_changes_a_reply_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = app.HANDLERS["train"]

    def lying(batch: ClientBatch) -> Delivery:
        arrivals = Delivery.of(honest(batch))
        (replies,) = arrivals.tables
        replies.set_metric(NUM_EXAMPLES, [0, *replies.metrics[NUM_EXAMPLES][1:]])
        return arrivals

    monkeypatch.setitem(app.HANDLERS, "train", lying)
    loop, folder = loop_on(LocalGrid, tmp_path, **{"client-selector": "all"})
    loop.play_round()
    assert [e["client"] for e in log_of(folder) if e["event"] == "quarantined"] == ["0"]


def test_plain_training_looks_at_one_context_only() -> None:
    grid = LocalGrid(6, read_config(KEYS).flat())
    assert len(replies_of(grid, sent_to_all(grid)).tables) == 1
    assert len(grid.contexts._made) == 1  # for the run config, which all share


def test_virtual_clients_are_their_contexts() -> None:
    grid = LocalGrid(6, read_config(KEYS).flat())
    nodes = list(grid.get_node_ids())
    some = VirtualClients([nodes[4], nodes[1]], nodes[0], grid.contexts)
    assert (some.numbers, some.total) == ([4, 1], 6)
    assert not grid.contexts._made
    assert [context.node_config["partition-id"] for context in some] == some.numbers
    assert some[1] is grid.contexts[nodes[1]]
    assert list(grid.contexts._made) == [nodes[4], nodes[1]]
    assert some.select([1]).numbers == [1]
    assert client_keys(some) == client_keys(list(some)) == ["4", "1"]
