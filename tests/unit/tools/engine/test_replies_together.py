"""A round of clients as one message and one stack of replies: the same as one by one."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from forager.client_app import app
from forager.client_app.identity import client_keys
from forager.client_app.virtual_clients import VirtualClients
from forager.core.config import default_config, read_config
from forager.core.log.events import Quarantined
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.broadcast import Broadcast, ReplyStack
from forager.core.wire.keys import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES
from forager.core.wire.sizes import sizes_of
from forager.server_app.app import build_loop
from forager.server_app.loop import Loop
from forager.strategies.aggregation.flower_aggregator import RunningMean, mean_of_stack, mean_reply
from forager.strategies.federation.federation import Federation
from forager.strategies.layers.base import Layer
from forager.strategies.layers.quarantine import Quarantine, SentModel, update_norm, update_norms
from forager.tools.engine.local_grid import LocalGrid

KEYS: dict[str, Any] = {"model": "softmax", "num-clients": 6, "num-server-rounds": 3}


def sent_to_all(grid: LocalGrid) -> Broadcast:
    model = load_task(read_config(KEYS).task_spec()).build_model()
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    content = RecordDict({ARRAYS: to_record(arrays), CONFIG: ConfigRecord({"server-round": 1})})
    nodes = list(grid.get_node_ids())
    return Broadcast(Message(content, dst_node_id=nodes[0], message_type="train"), nodes)


def replies_of(grid: LocalGrid, sent: Iterable[Message]) -> Iterable[Message]:
    return grid.pull_messages(list(grid.push_messages(sent)))


def stack_of(keys: dict[str, Any] | None = None) -> ReplyStack:
    grid = LocalGrid(6, read_config({**KEYS, **(keys or {})}).flat())
    replies = replies_of(grid, sent_to_all(grid))
    assert isinstance(replies, ReplyStack)
    assert replies.whole
    return replies


def plain(message: Message) -> tuple[Any, ...]:
    """All that a layer can see of a reply."""
    content, metadata = message.content, message.metadata
    arrays = {name: a.tobytes() for name, a in from_record(content[ARRAYS]).items()}  # type: ignore[arg-type]
    others = {name: dict(record) for name, record in content.items() if name != ARRAYS}  # type: ignore[call-overload]
    answers = (metadata.src_node_id, metadata.reply_to_message_id, metadata.message_type)
    return arrays, others, answers


def test_replies_of_a_stack_are_those_to_single_messages() -> None:
    together, apart = (LocalGrid(6, read_config(KEYS).flat()) for _ in range(2))
    sent = sent_to_all(apart)
    one_by_one = list(replies_of(apart, list(sent)))
    stack = replies_of(together, sent_to_all(together))
    assert isinstance(stack, ReplyStack)
    assert [plain(reply) for reply in stack] == [plain(reply) for reply in one_by_one]
    assert not stack.whole


def test_bytes_are_those_of_the_replies() -> None:
    stack = stack_of()
    total, largest = stack.sizes()
    assert stack.whole
    each = [sizes_of(reply.content) for reply in stack]
    assert (total, largest) == (sum(v for v, _ in each), max(v + n for v, n in each))


def test_messages_are_those_of_the_broadcast_once_it_was_sent() -> None:
    grid = LocalGrid(3, read_config(KEYS).flat())
    sent = sent_to_all(grid)
    ids = list(grid.push_messages(sent))
    assert [message.metadata.message_id for message in sent] == ids
    assert sent.to(sent.nodes[1]) is sent[1]
    assert len(list(grid.pull_messages(ids[:1]))) == 1  # it was looked at, and can be taken apart
    assert len(list(grid.pull_messages(ids))) == 2
    assert not list(grid.pull_messages(ids))


@pytest.mark.parametrize(
    "keys",
    [{"local.trainer": "serial"}, {"client-selector": "oort"}, {"objective": "scaffold"}],
    ids=str,
)
def test_other_clients_answer_one_by_one(keys: dict[str, Any]) -> None:
    grid = LocalGrid(6, read_config({**KEYS, **keys}).flat())
    replies = replies_of(grid, sent_to_all(grid))
    assert isinstance(replies, list)
    assert not any(reply.has_error() for reply in replies)


def test_norms_and_means_are_the_same_to_the_last_bit() -> None:
    stack, sent = stack_of(), SentModel(sent_to_all(LocalGrid(6, KEYS)).content[ARRAYS])  # type: ignore[arg-type]
    norms, mean = update_norms(sent, stack), mean_of_stack(stack)
    assert stack.whole
    assert norms is not None
    assert norms.tolist() == [update_norm(sent, reply) for reply in stack]
    (expected,) = mean_reply(stack)
    assert dict(mean.content[METRICS]) == dict(expected.content[METRICS])  # type: ignore[call-overload]
    np.testing.assert_array_equal(
        *(from_record(m.content[ARRAYS])["1.weight"] for m in (mean, expected))  # type: ignore[arg-type]
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
        self.given: Iterable[Message] = ()

    def configure_train(self, *_: Any) -> Iterable[Message]:
        return self.given

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        self.given = replies if isinstance(replies, ReplyStack) else list(replies)
        return None, None


def checked(stack: ReplyStack, **settings: Any) -> tuple[Iterable[Message], list[Any]]:
    """What the quarantine lets through, and what it says."""
    inside = Sum()
    layer = Quarantine(inside, **settings)
    told: list[Any] = []
    layer.federation.journal = told.append
    inside.given = stack.sent
    layer.configure_train(1, None, None, None)  # type: ignore[arg-type]
    layer.aggregate_train(1, stack)
    return inside.given, told


def test_the_quarantine_does_not_take_sound_replies_apart() -> None:
    stack = stack_of()
    assert checked(stack) == (stack, [])
    assert stack.whole


@pytest.mark.parametrize("fault", ["nan", "huge", "count", "loss"])
def test_the_quarantine_sets_aside_one_of_a_stack(fault: str) -> None:
    stack = stack_of()
    if fault == "nan":
        stack.arrays["1.bias"][2, 0] = np.nan
    elif fault == "huge":
        stack.arrays["1.weight"][2] += 1e6
    elif fault == "count":
        stack.metrics[NUM_EXAMPLES] = [60, 60, -1, 60, 60, 60]
    else:
        stack.metrics["train_loss"] = [1.0, 1.0, np.inf, 1.0, 1.0, 1.0]
    passed, told = checked(stack)
    assert [r.metadata.src_node_id for r in passed] == [1000, 1001, 1003, 1004, 1005]
    assert [type(event) for event in told] == [Quarantined]


def test_a_weight_limit_holds_in_a_stack() -> None:
    stack = stack_of()
    stack.metrics[NUM_EXAMPLES] = [60, 60, 600, 60, 60, 60]
    passed, told = checked(stack, weight_factor=2.0)
    assert [r.content[METRICS][NUM_EXAMPLES] for r in passed] == [60, 60, 120.0, 60, 60, 60]  # type: ignore[index]
    assert not told


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

    monkeypatch.setattr(Broadcast, "_make", refuse)
    monkeypatch.setattr(ReplyStack, "_make", refuse)
    loop.play_round()
    assert loop.round == 2


def test_whoever_asks_a_patient_grid_for_messages_gets_them(tmp_path: Path) -> None:
    loop, _ = loop_on(LocalGrid, tmp_path)
    loop.federation.nodes(loop.grid)
    assert isinstance(loop.grid.grid, LocalGrid)
    replies = list(loop.grid.send_and_receive(sent_to_all(loop.grid.grid)))
    assert [reply.metadata.src_node_id for reply in replies] == list(range(1000, 1006))


def test_a_handler_that_changes_a_reply_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = app.HANDLERS["train"]

    def lying(messages: Any, contexts: Any) -> Any:
        replies = honest(messages, contexts)
        replies[0].content[METRICS] = MetricRecord({NUM_EXAMPLES: 0})
        return replies

    monkeypatch.setitem(app.HANDLERS, "train", lying)
    loop, folder = loop_on(LocalGrid, tmp_path, **{"client-selector": "all"})
    loop.play_round()
    assert [e["client"] for e in log_of(folder) if e["event"] == "quarantined"] == ["0"]


def test_plain_training_looks_at_one_context_only() -> None:
    grid = LocalGrid(6, read_config(KEYS).flat())
    assert isinstance(replies_of(grid, sent_to_all(grid)), ReplyStack)
    assert len(grid.contexts._made) == 1  # for the run config, which all share


def test_virtual_clients_are_their_contexts() -> None:
    grid = LocalGrid(6, read_config(KEYS).flat())
    nodes = list(grid.get_node_ids())
    some = VirtualClients([nodes[4], nodes[1]], nodes[0], grid.contexts)
    assert (some.numbers, some.total, some.looked_at) == ([4, 1], 6, {})
    assert [context.node_config["partition-id"] for context in some] == some.numbers
    assert some[1] is grid.contexts[nodes[1]] is some[:2][1]
    assert list(some.looked_at) == [nodes[4], nodes[1]]
    assert client_keys(some) == client_keys(list(some)) == ["4", "1"]
