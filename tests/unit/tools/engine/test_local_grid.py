"""The local engine as a grid; whole runs on it are integration tests."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from forager.client_app.device.state import ClientState
from forager.core.config import read_config
from forager.core.storage import tree
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, CONFIG, IDENTIFY, METRICS
from forager.tools.engine.local_grid import LocalGrid

CONFIG_KEYS: dict[str, Any] = {"partition": "iid", "num-clients": 5}


def grid_of(num_clients: int = 5, **settings: Any) -> LocalGrid:
    return LocalGrid(num_clients, read_config(CONFIG_KEYS).flat(), **settings)


def train_messages(grid: LocalGrid) -> list[Message]:
    model = load_task(read_config(CONFIG_KEYS).task_spec()).build_model()
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    content = RecordDict({ARRAYS: to_record(arrays), CONFIG: ConfigRecord({"server-round": 1})})
    return [Message(content, dst_node_id=n, message_type="train") for n in grid.get_node_ids()]


def weights(replies: Iterable[Message]) -> dict[int, Any]:
    """All entries of each client's model, in one array."""
    return {
        reply.metadata.src_node_id: np.concatenate(
            [array.ravel() for array in from_record(reply.content[ARRAYS]).values()]  # type: ignore[arg-type]
        )
        for reply in replies
    }


def test_every_client_answers_for_itself() -> None:
    grid = grid_of()
    replies = list(grid.send_and_receive(train_messages(grid)))
    assert sorted(r.metadata.src_node_id for r in replies) == sorted(grid.get_node_ids())
    assert len({array.tobytes() for array in weights(replies).values()}) == 5
    assert all(r.content[METRICS]["num-examples"] > 0 for r in replies)  # type: ignore[operator]


def test_the_wire_changes_nothing() -> None:
    plain, wired = grid_of(), grid_of(check_wire=True)
    np.testing.assert_equal(
        weights(plain.send_and_receive(train_messages(plain))),
        weights(wired.send_and_receive(train_messages(wired))),
    )


def test_one_at_a_time_is_the_same_as_all_together() -> None:
    together, apart = grid_of(), grid_of()
    all_at_once = weights(together.send_and_receive(train_messages(together)))
    one_by_one: dict[int, Any] = {}
    for message in train_messages(apart):
        one_by_one |= weights(apart.send_and_receive([message]))
    for node, array in all_at_once.items():
        np.testing.assert_allclose(one_by_one[node], array, atol=1e-6)


def test_large_models_are_answered_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forager.tools.engine.local_grid._PULL_BYTES", 6000)
    grid = grid_of()
    ids = list(grid.push_messages(train_messages(grid)))
    sizes: list[int] = []
    while any(sizes[-1:] or [1]):
        sizes.append(len(list(grid.pull_messages(ids))))
    assert sizes == [2, 2, 1, 0]


def test_kinds_are_not_mixed_and_unknown_ones_fail() -> None:
    grid = grid_of(2)
    first, second = grid.get_node_ids()
    kinds = [(first, IDENTIFY), (second, "query.nonsense"), (second, IDENTIFY)]
    messages = [Message(RecordDict(), dst_node_id=n, message_type=k) for n, k in kinds]
    replies = list(grid.send_and_receive(messages))
    assert sorted(reply.has_error() for reply in replies) == [False, False, True]


def test_a_message_without_a_model_fails_for_its_client_only() -> None:
    grid = grid_of()
    messages = train_messages(grid)
    messages[2].content = RecordDict({CONFIG: ConfigRecord({"server-round": 1})})
    replies = list(grid.send_and_receive(messages))
    failed = [reply.metadata.src_node_id for reply in replies if reply.has_error()]
    assert failed == [messages[2].metadata.dst_node_id]


def test_ids_nobody_knows_bring_nothing() -> None:
    assert list(grid_of().pull_messages(["77", "x"])) == []


def test_what_clients_keep_is_saved_and_comes_back() -> None:
    grid = grid_of()
    node = next(iter(grid.contexts))
    state = ClientState(grid.contexts[node])
    state["counts"] = {"seen": 3}
    state.save()
    saved = tree.from_bytes(tree.to_bytes(grid.state_dict(), "test"), "test")
    fresh = grid_of()
    fresh.load_state_dict(saved)
    assert dict(ClientState(fresh.contexts[node])) == {"counts": {"seen": 3}}
    assert fresh.state_dict() == saved


def test_a_client_that_keeps_nothing_costs_nothing() -> None:
    grid = grid_of()
    list(grid.send_and_receive(train_messages(grid)))
    state = grid.state_dict()
    assert list(state) == [""]  # of the transport, none of a client
    assert state[""]["coming"] == state[""]["pending"] == []


def test_training_does_not_touch_the_model_that_was_sent() -> None:
    grid = grid_of()
    messages = train_messages(grid)
    before = {n: a.copy() for n, a in from_record(messages[0].content[ARRAYS]).items()}  # type: ignore[arg-type]
    list(grid.send_and_receive(messages))
    after = from_record(messages[0].content[ARRAYS])  # type: ignore[arg-type]
    assert {n: a.tolist() for n, a in after.items()} == {n: a.tolist() for n, a in before.items()}
