from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    assert_same,
    honest_records,
    listening_to,
    one_round,
    rounds,
    small_model,
    trained,
)
from flwr.app import ConfigRecord, Message, MetricRecord
from forager.core.config import read_config
from forager.core.log.events import Quarantined, SparseUplinkUsed
from forager.core.storage import tree
from forager.core.wire import sparse
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, PAYLOAD, SPARSE
from forager.core.wire.replies import Replies, ReplyStream
from forager.strategies.build import build_strategy
from forager.strategies.federation.roster import Roster
from forager.strategies.layers.base import Layer
from forager.strategies.layers.sparse_uplink import SparseUplink
from forager.tools.report.history import History
from forager.tools.report.story import uplink_sentence

KEYS = [str(i) for i in range(8)]
BAD = "3"
FLOATS = 15  # entries of the small model that an update is made of


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small model stands for one whose updates are worth encoding."""
    monkeypatch.setattr(SparseUplink, "most_bytes", lambda self, sizes: -99)


def stack(
    aggregator: str = "fedavg", uplink: str = "top-k", density: float = 0.4
) -> tuple[Layer, Notes]:
    keys: dict[str, Any] = {
        "aggregator": aggregator,
        "uplink": uplink,
        "num-clients": 8,
        "clients-per-round": 8,
    }
    config = read_config({**keys, "top-k.density": density})
    strategy = build_strategy(config)
    return strategy, listening_to(strategy)


def flat(arrays: dict[str, Any]) -> Any:
    return np.concatenate([a.ravel() for a in arrays.values() if a.dtype.kind == "f"])


class Listening(Layer):
    """Keeps what the layer outside hands in."""

    def __init__(self) -> None:
        super().__init__(stack(uplink="dense")[0])
        self.seen: dict[int, Message] = {}

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.seen = {reply.metadata.src_node_id: reply for reply in replies}
        return None, None


@pytest.mark.parametrize("density", [0.1, 0.4, 1.0])
def test_decodes_to_what_was_sent_plus_the_largest_changes(density: float) -> None:
    listening = Listening()
    layer = SparseUplink(listening, density=density)
    grid = FakeGrid(KEYS, wire=True)
    one_round(layer, to_record(small_model()), grid)
    before = flat(small_model())
    kept = round(density * FLOATS)
    assert len(listening.seen) == len(KEYS)
    for node, reply in listening.seen.items():
        change = flat(trained(small_model(), grid.nodes[node], 1)) - before
        smallest = np.sort(np.abs(change))[FLOATS - kept]
        expected = before + np.where(np.abs(change) >= smallest, change, 0)
        assert SPARSE not in reply.content
        np.testing.assert_array_equal(
            flat(from_record(reply.content.array_records[ARRAYS])), expected
        )


@pytest.mark.parametrize("aggregator", ["fedavg", "fedyogi", "median", "krum", "bulyan"])
def test_full_density_is_dense_training(aggregator: str) -> None:
    start = to_record(small_model())
    sparse_run = rounds(stack(aggregator, density=1.0)[0], start, FakeGrid(KEYS), range(1, 4))
    dense_run = rounds(stack(aggregator, "dense")[0], start, FakeGrid(KEYS), range(1, 4))
    floats = [name for name in sparse_run if name.startswith("layer")]
    for name in floats:
        np.testing.assert_allclose(
            from_record(sparse_run)[name], from_record(dense_run)[name], rtol=1e-5, atol=1e-6
        )


def test_half_precision_values_are_close() -> None:
    start = to_record(small_model())
    half = rounds(stack(uplink="compact")[0], start, FakeGrid(KEYS), range(1, 3))
    full = rounds(stack(density=0.3)[0], start, FakeGrid(KEYS), range(1, 3))
    assert_same(half, full, rtol=0.02, atol=1e-3)
    assert not np.array_equal(from_record(half)["layer.bias"], from_record(full)["layer.bias"])


def test_the_journal_says_what_whole_models_would_have_taken() -> None:
    layer, notes = stack(density=0.4)
    grid = FakeGrid(KEYS, {BAD: with_payload(ConfigRecord({PAYLOAD: b"rubbish"}))})
    one_round(layer, to_record(small_model()), grid, server_round=4)
    model_bytes = sum(array.nbytes for array in small_model().values())
    (event,) = notes.of(SparseUplinkUsed)
    assert (event.round, event.bytes_dense) == (4, 7 * model_bytes)
    changes = [
        flat(trained(small_model(), key, 4)) - flat(small_model()) for key in KEYS if key != BAD
    ]
    assert event.bytes_sparse == sum(len(sparse.encode(change, 6)) for change in changes)


def with_payload(payload: Any) -> Any:
    def behave(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        if payload is None:
            records.pop(SPARSE)
        else:
            records[SPARSE] = payload
        return [answer(message, records)]

    return behave


def payload_of(update: Any) -> ConfigRecord:
    update = np.asarray(update, dtype=np.float32)
    return ConfigRecord({PAYLOAD: sparse.encode(update, max(1, update.size // 2))})


GOOD_PAYLOAD = sparse.encode(np.linspace(-1, 1, FLOATS, dtype=np.float32), 5)

MALFORMED: dict[str, Any] = {
    "rubbish": ConfigRecord({PAYLOAD: b"rubbish"}),
    "nothing": ConfigRecord({PAYLOAD: b""}),
    "cut off": ConfigRecord({PAYLOAD: GOOD_PAYLOAD[:-3]}),
    "too long": ConfigRecord({PAYLOAD: GOOD_PAYLOAD + b"\0"}),
    "text": ConfigRecord({PAYLOAD: "text"}),
    "no payload": ConfigRecord({"other": 1}),
    "another record": MetricRecord({"x": 1}),
    "model of other size": payload_of(np.ones(FLOATS + 1)),
    "smaller model": payload_of(np.ones(FLOATS - 1)),
    "nan": payload_of([np.nan] * FLOATS),
    "infinite": payload_of([np.inf] * FLOATS),
    "absurdly large": payload_of([1e9] * FLOATS),
    "neither sparse nor dense": None,
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("aggregator", ["fedavg", "median", "krum"])
def test_a_malformed_update_is_set_aside(aggregator: str, payload: Any) -> None:
    layer, notes = stack(aggregator)
    grid = FakeGrid(KEYS, {BAD: with_payload(payload)})
    got, _ = one_round(layer, to_record(small_model()), grid)
    good = [key for key in KEYS if key != BAD]
    wanted, _ = one_round(stack(aggregator)[0], to_record(small_model()), FakeGrid(good))
    assert_same(got, wanted)
    (event,) = notes.of(Quarantined)
    # Under the round loop the roster has learnt the name when the reply arrived.
    assert event.client in (BAD, Roster.nameless(503))
    assert event.reason


def test_an_update_nobody_asked_for_is_set_aside() -> None:
    layer, notes = stack()

    def from_elsewhere(message: Message, key: str, look: int) -> list[Message]:
        reply = answer(message, honest_records(message, key))
        reply.metadata.__dict__["_src_node_id"] = 4242
        return [reply]

    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, {BAD: from_elsewhere}))
    assert got is not None
    assert len(notes.of(Quarantined)) == 1


def test_all_malformed_is_no_model_and_no_exception() -> None:
    layer, notes = stack()
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, with_payload(MALFORMED["rubbish"])))
    assert one_round(layer, to_record(small_model()), grid) == (None, None)
    assert len(notes.of(Quarantined)) == len(KEYS)


def test_replies_are_decoded_one_by_one() -> None:
    class First(Listening):
        """Reads no more than the first reply."""

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return super().aggregate_train(server_round, [next(iter(replies))])

    layer, grid = SparseUplink(First(), density=0.4), FakeGrid(KEYS)
    messages = list(layer.configure_train(1, to_record(small_model()), ConfigRecord(), grid))
    tables = [Replies.of(reply) for reply in grid.send_and_receive(messages)]
    layer.aggregate_train(1, ReplyStream(iter(tables)))
    assert [table.has(ARRAYS) for table in tables] == [True] + [False] * 7


def test_the_reference_is_not_changed() -> None:
    reference = to_record(small_model())
    got, _ = one_round(stack(density=1.0)[0], reference, FakeGrid(KEYS))
    assert_same(reference, to_record(small_model()))
    assert got is not None
    assert list(got) == list(reference)


def test_integer_arrays_are_no_part_of_an_update() -> None:
    """They stay what was sent, whatever a client made of them."""
    got, _ = one_round(stack(density=1.0)[0], to_record(small_model()), FakeGrid(KEYS))
    assert got is not None
    assert from_record(got)["norm.num_batches_tracked"] == 5


def test_a_dense_reply_is_taken_as_it_is() -> None:
    """A client that cannot do it answers densely: nothing is lost."""

    def dense(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        del records[SPARSE]
        before = from_record(message.content.array_records[ARRAYS])
        records[ARRAYS] = to_record(trained(before, key, 1))
        return [answer(message, records)]

    layer, notes = stack(density=1.0)
    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, {BAD: dense}))
    wanted, _ = one_round(stack(density=1.0)[0], to_record(small_model()), FakeGrid(KEYS))
    assert notes.of(Quarantined) == []
    np.testing.assert_allclose(
        from_record(got)["layer.weight"],  # type: ignore[arg-type]
        from_record(wanted)["layer.weight"],  # type: ignore[arg-type]
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("sizes", "advised"),
    [((1.0, 1.1), True), ((0.0, 1.0), False), ((0.0, 0.0), False)],
    ids=["as large as the others", "steep", "zero"],
)
@pytest.mark.parametrize("resumed_after", [0, 2, 5])
def test_changes_of_equal_size_do_not_suit_top_k(
    sizes: tuple[float, float],
    advised: bool,
    resumed_after: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def behave(message: Message, key: str, look: int) -> list[Message]:
        rng = np.random.default_rng(int(key))
        change = rng.uniform(*sizes, size=FLOATS) ** 3 * rng.choice([-1, 1], size=FLOATS)
        payload = sparse.encode(change.astype(np.float32), 6)
        return with_payload(ConfigRecord({PAYLOAD: payload}))(message, key, look)

    layer, notes = stack(density=0.4)
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, behave))
    with caplog.at_level("WARNING", "forager"):
        rounds(layer, to_record(small_model()), grid, range(1, resumed_after + 1))
        saved = tree.from_bytes(tree.to_bytes(layer.state_dict(), "test"), "test")
        resumed, later = stack(density=0.4)
        resumed.load_state_dict(saved)
        rounds(resumed, to_record(small_model()), grid, range(resumed_after + 1, 12))
    notes.events += later.events
    told = [event.advice for event in notes.of(SparseUplinkUsed) if event.advice]
    assert len(told) == advised
    assert caplog.messages.count("".join(told)) == advised
    if advised:
        assert "uplink='int8' (a byte per entry) and 'dense' leave out none" in told[0]
        used = {"event": "uplink", "round": 5, "bytes_sparse": 1, "bytes_dense": 2}
        history = History.from_events([{**used, "advice": told[0]}, {**used, "round": 6}])
        assert uplink_sentence(history) == f"T{told[0][1:]}."
        assert told[0] not in SparseUplinkUsed(advice=told[0]).without_data().to_dict().values()
