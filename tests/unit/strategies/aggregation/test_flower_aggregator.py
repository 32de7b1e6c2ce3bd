import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    answer,
    assert_same,
    failing,
    honest_records,
    num_examples,
    one_round,
    rounds,
    small_model,
)
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy
from forager.core.config import read_config
from forager.core.methods.base import load
from forager.core.methods.catalogue import methods
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, METRICS
from forager.strategies.aggregation.flower_aggregator import (
    FlowerAggregator,
    quick_collections,
)
from forager.strategies.aggregation.fltrust import FLTrust
from forager.strategies.aggregation.paced import PacedAvg
from forager.strategies.aggregation.running_mean import RunningMean, _Terms, mean_of

KEYS = [str(i) for i in range(8)]
ALL_OF_THEM: dict[str, Any] = {
    "min_train_nodes": 1,
    "min_evaluate_nodes": 1,
    "min_available_nodes": 1,
}


def floats_only() -> ArrayRecord:
    return to_record({n: a for n, a in small_model().items() if a.dtype.kind == "f"})


def arrays_of(reply: Message) -> dict[str, Any]:
    """The arrays of a reply, not by Flower's properties: those leave cycles that keep it alive."""
    record = reply.content[ARRAYS]
    assert isinstance(record, ArrayRecord)
    return from_record(record)


def stock(aggregator: str) -> FlowerAggregator:
    config = read_config({"aggregator": aggregator, "num-clients": 8, "clients-per-round": 8})
    layer = load(methods("aggregator")[aggregator].core)(config)
    assert isinstance(layer, FlowerAggregator)
    if isinstance(layer.inner, FLTrust):  # the models of these tests are of no task
        inner = layer.inner
        inner.own_update = lambda server_round: np.zeros_like(inner.flat(inner.current))  # type: ignore[method-assign]
    return layer


PAIRS: dict[str, Strategy] = {
    "fedavg": flower.FedAvg(**ALL_OF_THEM),
    "fedavgm": flower.FedAvgM(**ALL_OF_THEM, server_momentum=0.9),
    "fedadam": flower.FedAdam(**ALL_OF_THEM, beta_1=0.9, beta_2=0.99),
    "fedyogi": flower.FedYogi(**ALL_OF_THEM, beta_1=0.9, beta_2=0.99),
    "fedadagrad": flower.FedAdagrad(**ALL_OF_THEM),
    "median": flower.FedMedian(**ALL_OF_THEM),
    "trimmed-mean": flower.FedTrimmedAvg(**ALL_OF_THEM, beta=0.2),
    "krum": flower.Krum(**ALL_OF_THEM, num_malicious_nodes=1),
    "multi-krum": flower.MultiKrum(**ALL_OF_THEM, num_malicious_nodes=1, num_nodes_to_select=5),
    "bulyan": flower.Bulyan(**ALL_OF_THEM, num_malicious_nodes=1),
    "qfedavg": flower.QFedAvg(0.1, q=0.1, **ALL_OF_THEM),
    "paced": PacedAvg(**ALL_OF_THEM),
}


def test_every_aggregator_is_compared() -> None:
    ours = {"clipped-mean", "fltrust"}  # see test_trusting_means.py
    assert PAIRS.keys() | ours == methods("aggregator").keys()


@pytest.mark.parametrize("aggregator", PAIRS)
def test_equals_flowers_own_strategy(aggregator: str) -> None:
    ours = theirs = floats_only()
    mine, flowers = stock(aggregator), PAIRS[aggregator]
    for number in (1, 2, 3):
        new, metrics = one_round(mine, ours, FakeGrid(KEYS), number)
        with quick_collections():  # q-FedAvg and Bulyan collect garbage once per reply
            wanted, wanted_metrics = one_round(flowers, theirs, FakeGrid(KEYS), number)
        assert new is not None
        assert wanted is not None
        ours, theirs = new, wanted
        for name in ours:
            np.testing.assert_allclose(
                from_record(ours)[name], from_record(theirs)[name], rtol=2e-5, atol=1e-6
            )
        assert metrics is not None
        assert metrics == pytest.approx(wanted_metrics)


def test_the_streamed_mean_is_the_mean() -> None:
    got, metrics = one_round(stock("fedavg"), floats_only(), FakeGrid(KEYS))
    wanted, wanted_metrics = one_round(
        flower.FedAvg(**ALL_OF_THEM),
        floats_only(),
        FakeGrid(KEYS),
    )
    assert_same(got, wanted, rtol=1e-6, atol=1e-6)
    assert metrics == pytest.approx(wanted_metrics)


def test_a_learning_rate_of_the_server_is_a_step_towards_the_mean() -> None:
    """GCFL: theta + eta_g * mean(delta)."""
    rate = read_config({"aggregation.learning-rate": 0.25})
    slow = load(methods("aggregator")["fedavg"].core)(rate)
    start = from_record(floats_only())
    mean, _ = one_round(stock("fedavg"), floats_only(), FakeGrid(KEYS))
    got, _ = one_round(slow, floats_only(), FakeGrid(KEYS))
    assert mean is not None
    assert got is not None
    for name, before in start.items():
        wanted = before + 0.25 * (from_record(mean)[name] - before)
        np.testing.assert_allclose(from_record(got)[name], wanted, rtol=1e-5, atol=1e-6)


def replies_of(layer: Strategy, arrays: ArrayRecord) -> list[Message]:
    grid = FakeGrid(KEYS)
    messages = layer.configure_train(1, arrays, ConfigRecord(), grid)
    ordered = sorted(messages, key=lambda m: m.metadata.dst_node_id)
    return list(grid.send_and_receive(ordered))


@pytest.mark.parametrize("aggregator", methods("aggregator"))
def test_replies_may_be_a_stream(aggregator: str) -> None:
    arrays = to_record(small_model())
    layer, other = stock(aggregator), stock(aggregator)
    streamed, _ = layer.aggregate_train(1, iter(replies_of(layer, arrays)))
    listed, _ = other.aggregate_train(1, replies_of(other, arrays))
    assert_same(streamed, listed)


def test_with_equal_weights_a_strategy_sees_one_sample_of_each() -> None:
    seen: list[Any] = []

    class Seeing(flower.FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            seen.extend(reply.content[METRICS]["num-examples"] for reply in replies)
            return None, None

    layer = FlowerAggregator(Seeing(**ALL_OF_THEM), mean_like=False, equal_weights=True)
    one_round(layer, floats_only(), FakeGrid(KEYS))
    assert seen == [1] * len(KEYS)


@pytest.mark.parametrize("aggregator", ["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_means_hold_no_more_than_two_replies(aggregator: str) -> None:
    """The one being added and, for its metadata, the first."""
    layer = stock(aggregator)
    waiting = replies_of(layer, to_record(small_model()))
    alive: list[Any] = []
    most = 0

    def stream() -> Iterator[Message]:
        nonlocal most
        while waiting:
            reply = waiting.pop()
            arrays = arrays_of(reply)
            alive.extend(weakref.ref(array) for array in arrays.values() if array.ndim == 2)
            del arrays
            yield reply
            del reply
            most = max(most, sum(ref() is not None for ref in alive))

    assert layer.aggregate_train(1, stream())[0] is not None
    gc.collect()
    assert len(alive) == len(KEYS)
    assert most <= 2
    assert all(ref() is None for ref in alive)


def test_the_first_reply_is_let_go_too() -> None:
    """A model of a gigabyte need not be there twice for the sake of a message id."""
    layer = stock("fedavg")
    waiting = replies_of(layer, to_record(small_model()))
    first: list[Any] = []
    held = []

    def stream() -> Iterator[Message]:
        for number in range(len(waiting)):
            reply = waiting.pop()
            if number == 0:
                array = arrays_of(reply)["layer.weight"]
                first.append(weakref.ref(array))
                del array
            yield reply
            del reply
            held.append(first[0]() is not None)

    layer.aggregate_train(1, stream())
    assert held[-1] is False


@pytest.mark.parametrize("aggregator", methods("aggregator"))
def test_failures_are_left_out(aggregator: str) -> None:
    got, _ = one_round(stock(aggregator), to_record(small_model()), FakeGrid(KEYS, {"2": failing}))
    others = [key for key in KEYS if key != "2"]
    wanted, _ = one_round(stock(aggregator), to_record(small_model()), FakeGrid(others))
    assert_same(got, wanted)
    all_failing = FakeGrid(KEYS, dict.fromkeys(KEYS, failing))
    assert one_round(stock(aggregator), to_record(small_model()), all_failing) == (None, None)


def test_sums_do_not_depend_on_the_order_of_arrival() -> None:
    layer, other = stock("fedavg"), stock("fedavg")
    arrays = to_record(small_model())
    forward, _ = layer.aggregate_train(1, replies_of(layer, arrays))
    backward, _ = other.aggregate_train(1, replies_of(other, arrays)[::-1])
    assert_same(forward, backward)


def test_integers_are_hidden_from_the_strategy_and_sent_to_clients() -> None:
    seen: list[list[str]] = []

    class Watching(flower.FedAvg):
        def configure_train(self, server_round: Any, arrays: Any, config: Any, grid: Any) -> Any:
            seen.append(list(arrays))
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            seen.extend(list(reply.content[ARRAYS]) for reply in replies)
            return super().aggregate_train(server_round, replies)

    grid = FakeGrid(KEYS)
    layer = FlowerAggregator(Watching(**ALL_OF_THEM), mean_like=False)
    got, _ = one_round(layer, to_record(small_model()), grid)
    assert seen == [["layer.weight", "layer.bias"]] * (1 + len(KEYS))
    assert got is not None
    assert list(got) == list(small_model())
    assert all(list(m.content[ARRAYS]) == list(small_model()) for m in grid.sent)
    assert from_record(got)["norm.num_batches_tracked"] == 5 + 1 + 3  # the median


@pytest.mark.parametrize("aggregator", methods("aggregator"))
def test_no_client_makes_up_integers(aggregator: str) -> None:
    """An index out of range would stop the server; counters take the median."""
    model = {**small_model(), "positions": np.arange(4)}

    def lie(message: Message, key: str, look: int = 0) -> list[Message]:
        records = honest_records(message, key)
        arrays = from_record(records[ARRAYS])
        lies = {n: np.full_like(a, 2**40) for n, a in arrays.items() if a.dtype.kind == "i"}
        return [answer(message, {**records, ARRAYS: to_record({**arrays, **lies})})]

    got, _ = one_round(stock(aggregator), to_record(model), FakeGrid(KEYS, {"3": lie}))
    assert got is not None
    assert from_record(got)["positions"].tolist() == [0, 1, 2, 3]
    assert 5 < from_record(got)["norm.num_batches_tracked"] <= 5 + 1 + 7


@pytest.mark.parametrize("aggregator", methods("aggregator"))
def test_a_client_that_sends_its_message_back_does_not_take_the_model_apart(
    aggregator: str,
) -> None:
    """In one process the reply's record may be the very record that the server sent."""

    def echo(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        records[ARRAYS] = message.content[ARRAYS]
        return [answer(message, records)]

    start = to_record(small_model())
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, echo))
    got, _ = one_round(stock(aggregator), start, grid)
    assert_same(start, to_record(small_model()))
    assert got is not None
    np.testing.assert_allclose(
        from_record(got)["layer.weight"], small_model()["layer.weight"], rtol=1e-5
    )


@pytest.mark.parametrize("aggregator", methods("aggregator"))
def test_float64_and_float16_stay_what_they_are(aggregator: str) -> None:
    start: dict[str, Any] = {
        "double": np.linspace(0, 1, 6),
        "half": np.linspace(0, 1, 6).astype(np.float16),
    }
    got = rounds(stock(aggregator), to_record(start), FakeGrid(KEYS), range(1, 3))
    assert [array.dtype for array in got.values()] == ["float64", "float16"]


def test_running_mean_weighs_by_examples() -> None:
    mean = RunningMean()
    values = np.array([[1.0, 2.0], [5.0, -2.0], [0.0, 9.0]], dtype=np.float32)
    weights = [1.0, 3.0, 6.0]
    for value, weight in zip(values, weights, strict=True):
        mean.add({"w": value}, {"loss": float(value[0])}, weight=weight)
    np.testing.assert_allclose(mean.arrays["w"], np.average(values, axis=0, weights=weights))
    assert mean.arrays["w"].dtype == np.float32
    assert mean.metrics["loss"] == pytest.approx(np.average(values[:, 0], weights=weights))


@pytest.mark.parametrize(
    ("shape", "expected", "rows"),
    [
        ((), 5, 6),  # all of them are one addition
        ((3,), 1, 2),
        ((0,), 500, 128),
        ((1023,), 500, 128),
        ((2**11,), 500, 63),
        ((2**20,), 500, 2),  # of a large array there is no more than the sum and one reply
    ],
)
def test_few_large_arrays_are_held_at_a_time(
    shape: tuple[int, ...], expected: int, rows: int
) -> None:
    assert _Terms(shape, expected)._rows.shape == (rows, *shape)


def test_a_metric_that_some_leave_out_is_the_mean_of_those_who_report_it() -> None:
    layer = stock("fedavg")
    replies = replies_of(layer, to_record(small_model()))
    del replies[0].content[METRICS]["train_loss"]
    _, metrics = layer.aggregate_train(1, replies)
    weights = [num_examples(key) for key in KEYS[1:]]
    expected = np.average([1 / (1 + int(key)) for key in KEYS[1:]], weights=weights)
    assert metrics is not None
    assert metrics["train_loss"] == pytest.approx(expected)


def test_no_replies_give_no_mean() -> None:
    assert mean_of([]) is None


def test_huge_and_tiny_weights_do_not_overflow() -> None:
    layer = stock("fedavg")
    replies = replies_of(layer, to_record(small_model()))
    for number, reply in enumerate(replies):
        metrics = {"num-examples": 10 ** (2 * number), "train_loss": 1.0}
        reply.content[METRICS] = MetricRecord(metrics)
    got, _ = layer.aggregate_train(1, replies)
    assert got is not None
    assert np.isfinite(from_record(got)["layer.weight"]).all()
