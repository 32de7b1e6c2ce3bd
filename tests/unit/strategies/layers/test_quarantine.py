import io
import math
import re
import zipfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    assert_same,
    honest,
    honest_records,
    listening_to,
    num_examples,
    one_round,
    rounds,
    small_model,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from forager.core.config import read_config
from forager.core.log.events import Decided, Quarantined
from forager.core.methods.base import load
from forager.core.methods.catalogue import methods
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from forager.strategies.aggregation.fltrust import FLTrust
from forager.strategies.build import build_strategy
from forager.strategies.federation.roster import Roster
from forager.strategies.layers.quarantine import MostlyOutliers, QuarantineLayer, _all_sound
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = [str(i) for i in range(8)]
BAD = "3"
GOOD = [key for key in KEYS if key != BAD]

Records = dict[str, Any]
Spoil = Callable[[Records], None]


@pytest.fixture(autouse=True)
def _fltrust_without_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of these tests are of no task: the server could not train them."""
    own = lambda self, server_round: np.full_like(self.flat(self.current), 0.1)  # noqa: E731
    monkeypatch.setattr(FLTrust, "own_update", own)


def quarantine(aggregator: str = "fedavg", **other: Any) -> tuple[QuarantineLayer, Notes]:
    config = read_config({"aggregator": aggregator, "num-clients": 8, "clients-per-round": 8})
    layer = QuarantineLayer(load(methods("aggregator")[aggregator].core)(config), **other)
    return layer, listening_to(layer)


def with_arrays(change: Callable[[dict[str, Any]], None]) -> Spoil:
    def spoil(records: Records) -> None:
        arrays = {name: array.copy() for name, array in from_record(records[ARRAYS]).items()}
        change(arrays)
        records[ARRAYS] = to_record(arrays)

    return spoil


def with_metrics(**values: Any) -> Spoil:
    def spoil(records: Records) -> None:
        metrics = {**records[METRICS], **{k.replace("_", "-"): v for k, v in values.items()}}
        records[METRICS] = MetricRecord({k: v for k, v in metrics.items() if v is not None})

    return spoil


def with_bytes(data: bytes, dtype: str = "float32", stype: str = "numpy.ndarray") -> Spoil:
    """The bias is sent with the right header and these bytes."""

    def spoil(records: Records) -> None:
        record = ArrayRecord(dict(records[ARRAYS].items()))
        record["layer.bias"] = Array(dtype, (3,), stype, data)
        records[ARRAYS] = record

    return spoil


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array))
    return buffer.getvalue()


def npz(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, np.asarray(array))
    return buffer.getvalue()


def npy_with_header(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def empty_zip() -> bytes:
    buffer = io.BytesIO()
    zipfile.ZipFile(buffer, "w").close()
    return buffer.getvalue()


def put(name: str, value: Any) -> Spoil:
    return with_arrays(lambda arrays: arrays.__setitem__(name, value))


def put_entry(value: float) -> Spoil:
    return with_arrays(lambda arrays: arrays["layer.weight"].__setitem__((2, 1), value))


def drop(name: str) -> Spoil:
    return lambda records: records.pop(name)


def add(name: str, record: Any) -> Spoil:
    return lambda records: records.__setitem__(name, record)


SPOILT: dict[str, tuple[Spoil, str]] = {
    "nan": (put_entry(np.nan), "not finite"),
    "infinite": (put_entry(np.inf), "not finite"),
    "minus infinite": (put_entry(-np.inf), "not finite"),
    "too large to square": (put_entry(1e38), "not finite|norm"),
    "absurdly large": (put_entry(1e6), "norm"),
    "wrong shape": (put("layer.bias", np.zeros(4, np.float32)), r"float32\[4\]"),
    "shape that broadcasts": (put("layer.bias", np.zeros(1, np.float32)), r"float32\[1\]"),
    "wrong dtype": (put("layer.bias", np.zeros(3, np.float64)), "float64"),
    "integers for floats": (put("layer.bias", np.zeros(3, np.int64)), "int64"),
    "float counter": (put("norm.num_batches_tracked", np.array(6.0)), "float64"),
    "extra array": (put("intruder", np.zeros(2, np.float32)), "intruder"),
    "missing array": (with_arrays(lambda a: a.pop("layer.bias")), "layer.bias"),
    "no arrays": (drop(ARRAYS), "0 array records"),
    "two array records": (add("more", to_record({"w": np.zeros(1)})), "2 array records"),
    "no metrics": (drop(METRICS), "0 metric records"),
    "two metric records": (add("more", MetricRecord({"x": 1})), "2 metric records"),
    "no examples": (with_metrics(num_examples=None), "num-examples = None"),
    "zero examples": (with_metrics(num_examples=0), "num-examples = 0"),
    "a part of an example": (with_metrics(num_examples=1e-6), "num-examples = 1e-06"),
    "half an example": (with_metrics(num_examples=12.5), "num-examples = 12.5"),
    "negative examples": (with_metrics(num_examples=-4), "num-examples = -4"),
    "nan examples": (with_metrics(num_examples=float("nan")), "num-examples = nan"),
    "infinite examples": (with_metrics(num_examples=float("inf")), "num-examples = inf"),
    "more examples than can be": (with_metrics(num_examples=1e300), "num-examples = 1e\\+300"),
    "list of examples": (with_metrics(num_examples=[3, 4]), r"num-examples = \[3, 4\]"),
    "nan metric": (with_metrics(**{"train_loss": 1.0, "x": float("nan")}), "metric x"),
    "infinite metric in a list": (with_metrics(x=[1.0, float("inf")]), "metric x"),
    "bytes that are no array": (with_bytes(b"rubbish"), "layer.bias"),
    "no bytes": (with_bytes(b""), "layer.bias"),
    "pickle": (with_bytes(b"\x80\x04N."), "layer.bias"),
    "truncated array": (with_bytes(npy(np.zeros(3, np.float32))[:-2]), "layer.bias"),
    "other shape than its header": (with_bytes(npy(np.zeros(5, np.float32))), "layer.bias"),
    "other dtype than its header": (with_bytes(npy(np.zeros(3, np.float64))), "layer.bias"),
    "archive instead of an array": (with_bytes(npz(np.zeros(3, np.float32))), "layer.bias"),
    "empty archive": (with_bytes(empty_zip()), "layer.bias"),
    "torn archive": (with_bytes(npz(np.zeros(3, np.float32))[:60]), "layer.bias"),
    "header that never ends": (with_bytes(npy_with_header(b"{'descr': (")), "layer.bias"),
    "header of deep brackets": (with_bytes(npy_with_header(b"(" * 9000)), "layer.bias"),
    "allocation bomb": (
        with_bytes(
            npy_with_header(
                b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999,), }\n"
            )
        ),
        "layer.bias",
    ),
    "other serialisation": (
        with_bytes(npy(np.zeros(3, np.float32)), stype="pickle"),
        "layer.bias",
    ),
    "unknown dtype": (with_bytes(npy(np.zeros(3, np.float32)), dtype="floaty"), "floaty"),
}

spoilt = pytest.mark.parametrize(("spoil", "reason"), SPOILT.values(), ids=SPOILT.keys())


def spoiling(spoil: Spoil) -> Callable[[Message, str, int], list[Message]]:
    def behave(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        spoil(records)
        return [answer(message, records)]

    return behave


@spoilt
def test_a_bad_reply_is_set_aside_named_and_counted(spoil: Spoil, reason: str) -> None:
    layer, notes = quarantine()
    for message in sent_to(layer, BAD):
        layer.federation.roster.learn(honest(message, BAD)[0])
    got, metrics = one_round(
        layer, to_record(small_model()), FakeGrid(KEYS, {BAD: spoiling(spoil)})
    )

    without, _ = quarantine()
    wanted, wanted_metrics = one_round(without, to_record(small_model()), FakeGrid(GOOD))
    assert_same(got, wanted, rtol=1e-5)
    assert metrics == wanted_metrics
    (event,) = notes.of(Quarantined)
    assert (event.round, event.client) == (1, BAD)
    assert re.search(reason, event.reason), event.reason
    assert dict(layer.federation.strikes) == {BAD: 1}


def sent_to(layer: QuarantineLayer, key: str) -> list[Message]:
    grid = FakeGrid(KEYS)
    arrays = to_record(small_model())
    messages = list(layer.configure_train(1, arrays, ConfigRecord(), grid))
    return [m for m in messages if grid.nodes[m.metadata.dst_node_id] == key]


@spoilt
def test_it_is_the_same_on_the_wire(spoil: Spoil, reason: str) -> None:
    layer, notes = quarantine()
    grid = FakeGrid(KEYS, {BAD: spoiling(spoil)}, wire=True)
    got, _ = one_round(layer, to_record(small_model()), grid)
    without, _ = quarantine()
    wanted, _ = one_round(without, to_record(small_model()), FakeGrid(GOOD))
    assert_same(got, wanted, rtol=1e-5)
    assert len(notes.of(Quarantined)) == 1


@pytest.mark.parametrize("aggregator", methods("aggregator"))
@pytest.mark.parametrize("name", ["nan", "wrong shape", "zero examples", "bytes that are no array"])
def test_any_aggregator_goes_on_with_the_rest(aggregator: str, name: str) -> None:
    layer, notes = quarantine(aggregator)
    spoil, _ = SPOILT[name]
    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, {BAD: spoiling(spoil)}))
    without, _ = quarantine(aggregator)
    wanted, _ = one_round(without, to_record(small_model()), FakeGrid(GOOD))
    assert_same(got, wanted, rtol=1e-5)
    assert len(notes.of(Quarantined)) == 1


@pytest.mark.parametrize("aggregator", methods("aggregator"))
@pytest.mark.parametrize(
    "spoil",
    [
        with_metrics(surplus=1.0),
        with_metrics(surplus=[1.0, 2.0]),
        lambda records: records.__setitem__("other-name", records.pop(ARRAYS)),
        lambda records: records.__setitem__("other-name", records.pop(METRICS)),
        lambda records: records.__setitem__(METRICS, MetricRecord({"num-examples": 12})),
        lambda records: records[METRICS].__setitem__("train_loss", -2.0),
        lambda records: records[METRICS].__setitem__("train_loss", [1.0, 2.0]),
    ],
    ids=[
        "surplus metric",
        "surplus list",
        "arrays under another name",
        "metrics under another name",
        "no loss",
        "negative loss",
        "list for a loss",
    ],
)
def test_one_odd_client_neither_stops_a_round_nor_spoils_it(aggregator: str, spoil: Spoil) -> None:
    layer, _ = quarantine(aggregator)
    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, {BAD: spoiling(spoil)}))
    assert got is not None
    assert all(np.isfinite(array).all() for array in from_record(got).values())


@pytest.mark.parametrize("aggregator", methods("aggregator"))
def test_all_bad_is_no_model_and_no_exception(aggregator: str) -> None:
    layer, notes = quarantine(aggregator)
    spoil = spoiling(put_entry(np.nan))
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, spoil))
    assert one_round(layer, to_record(small_model()), grid) == (None, None)
    assert len(notes.of(Quarantined)) == len(KEYS)


def test_a_reply_that_nobody_asked_for() -> None:
    layer, notes = quarantine()

    def from_elsewhere(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        reply.metadata.__dict__["_src_node_id"] = 4242
        return [reply]

    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, {BAD: from_elsewhere}))
    wanted, _ = one_round(quarantine()[0], to_record(small_model()), FakeGrid(GOOD))
    assert_same(got, wanted, rtol=1e-5)
    assert [event.client for event in notes.of(Quarantined)] == [Roster.nameless(4242)]


def test_only_the_first_of_two_replies_counts() -> None:
    layer, notes = quarantine()
    twice = {BAD: lambda message, key, look: honest(message, key) + honest(message, key)}
    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, twice))
    wanted, _ = one_round(quarantine()[0], to_record(small_model()), FakeGrid(KEYS))
    assert_same(got, wanted)
    assert "second" in notes.of(Quarantined)[0].reason


def test_a_reply_of_an_earlier_round_is_not_asked_for_now() -> None:
    layer, notes = quarantine()
    arrays = to_record(small_model())
    early = sent_to(layer, "0")
    list(layer.configure_train(2, arrays, ConfigRecord(), FakeGrid(KEYS[1:], first_node=501)))
    assert layer.aggregate_train(2, [honest(m, "0")[0] for m in early]) == (None, None)
    assert len(notes.of(Quarantined)) == 1


def test_what_is_absurd_is_learnt_from_accepted_updates() -> None:
    layer, notes = quarantine(norm_factor=5.0)
    arrays = rounds(layer, to_record(small_model()), FakeGrid(KEYS), range(1, 4))
    assert notes.of(Quarantined) == []
    ten_times = with_arrays(lambda a: a["layer.weight"].__iadd__(10.0))
    one_round(layer, arrays, FakeGrid(KEYS, {BAD: spoiling(ten_times)}), 4)
    assert len(notes.of(Quarantined)) == 1


def stretched(times: float) -> Spoil:
    """Return what makes an honest update this many times as long."""

    def change(arrays: dict[str, Any]) -> None:
        for name, sent in small_model().items():
            if sent.dtype.kind == "f":
                arrays[name][...] = sent + times * (arrays[name] - sent)

    return with_arrays(change)


def test_a_long_update_that_many_samples_explain_is_shortened_to_the_limit() -> None:
    """An honest client with most of the data takes many steps; it is not lost."""
    usual = float(np.median([num_examples(key) for key in GOOD]))

    def both(times: float, samples: float) -> Spoil:
        def spoil(records: Records) -> None:
            stretched(times)(records)
            with_metrics(num_examples=int(samples))(records)

        return spoil

    def of(times: float, samples: float) -> tuple[Any, Notes]:
        layer, notes = quarantine(norm_factor=5.0)
        bad = {BAD: spoiling(both(times, samples))}
        return one_round(layer, to_record(small_model()), FakeGrid(KEYS, bad))[0], notes

    got, notes = of(40.0, 90 * usual)
    further, _ = of(80.0, 90 * usual)
    assert notes.of(Quarantined) == []
    (event,) = notes.of(Decided)
    assert event.seen == f"client {Roster.nameless(503)} has 84 times the usual number of samples"
    assert_same(got, further, rtol=1e-4)  # however long, it counts as much as the limit
    wanted, _ = of(1.0, 90 * usual)
    with pytest.raises(AssertionError):
        assert_same(got, wanted, rtol=1e-2)
    _, notes = of(40.0, usual)
    assert [event.client for event in notes.of(Quarantined)] == [Roster.nameless(503)]
    assert notes.of(Decided) == []


def test_many_times_the_usual_number_of_samples_is_not_believed() -> None:
    layer, notes = quarantine(count_factor=5.0)
    grid = FakeGrid(KEYS)
    arrays = rounds(layer, to_record(small_model()), grid, range(1, 3))
    assert notes.of(Quarantined) == [], "10 to 31 samples are all usual"
    lie = spoiling(with_metrics(num_examples=200))
    got, _ = one_round(layer, arrays, FakeGrid(KEYS, {BAD: lie}), 3)
    (event,) = notes.of(Quarantined)
    assert (event.client, event.reason) == (
        Roster.nameless(503),
        "num-examples = 200, more than 163.1 (quarantine.count-factor)",
    )
    wanted, _ = one_round(quarantine()[0], arrays, FakeGrid(GOOD), 3)
    assert_same(got, wanted, rtol=1e-5)


def test_liars_do_not_move_what_is_usual() -> None:
    """From the first round on: a fifth of the clients does not decide the median."""
    layer, notes = quarantine(count_factor=5.0)
    lie = spoiling(with_metrics(num_examples=10_000))
    grid = FakeGrid(KEYS, {BAD: lie})
    rounds(layer, to_record(small_model()), grid, range(1, 5))
    assert [event.round for event in notes.of(Quarantined)] == [1, 2, 3, 4]


def test_of_two_first_replies_nobody_can_tell_which_one_lies() -> None:
    layer, notes = quarantine(count_factor=5.0)
    lie = spoiling(with_metrics(num_examples=10_000))
    got, _ = one_round(layer, to_record(small_model()), FakeGrid(["1", BAD], {BAD: lie}))
    assert got is not None
    assert notes.of(Quarantined) == []


def test_nobody_counts_for_many_times_the_usual_number_of_samples() -> None:
    """A claim that may be true is believed, but does not decide the model by itself."""
    claim = {BAD: spoiling(with_metrics(num_examples=1000))}
    layer, notes = quarantine(weight_factor=4.0, count_factor=100.0)
    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, claim))
    usual = float(np.median([1000, *map(num_examples, GOOD)]))
    capped = {BAD: spoiling(with_metrics(num_examples=4.0 * usual))}
    wanted, _ = one_round(quarantine()[0], to_record(small_model()), FakeGrid(KEYS, capped))
    assert_same(got, wanted, rtol=1e-6)
    assert notes.of(Quarantined) == []
    (event,) = notes.of(Decided)
    assert event.decision.startswith("such clients count for 4 times the usual number")
    unlimited, _ = quarantine(count_factor=100.0)
    free, _ = one_round(unlimited, to_record(small_model()), FakeGrid(KEYS, claim))
    with pytest.raises(AssertionError):
        assert_same(got, free, rtol=1e-3)


def test_names_that_a_few_clients_make_up_reach_no_log() -> None:
    layer, notes = quarantine()
    own = spoiling(with_metrics(**{"own": 1.0, "train-loss": 9.0}))
    many = spoiling(with_metrics(**{f"x{i}": 1.0 for i in range(30_000)}))
    grid = FakeGrid(KEYS, {"1": own, "2": own, BAD: many})
    _, metrics = one_round(layer, to_record(small_model()), grid)
    assert metrics is not None
    assert list(metrics) == ["train_loss"]
    assert [event.reason for event in notes.of(Quarantined)] == ["30002 metrics, more than 64"]


def test_a_variance_below_zero_is_set_aside() -> None:
    model = {**small_model(), "norm.running_var": np.ones(3, np.float32)}
    layer, notes = quarantine()
    below = with_arrays(lambda a: a["norm.running_var"].__setitem__(1, -0.1))
    one_round(layer, to_record(model), FakeGrid(KEYS, {BAD: spoiling(below)}))
    assert [event.reason for event in notes.of(Quarantined)] == [
        "array norm.running_var: variances below 0"
    ]
    sent = {**model, "norm.running_var": -np.ones(3, np.float32)}  # by the server's own optimiser
    one_round(layer, to_record(sent), FakeGrid(KEYS, {BAD: spoiling(below)}), 2)
    assert len(notes.of(Quarantined)) == 1


def test_by_default_twenty_times_an_update_backwards_is_set_aside() -> None:
    layer = build_strategy(read_config({"num-clients": 8, "clients-per-round": 8}))
    notes = listening_to(layer)

    def backwards(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        before = from_record(message.content.array_records[ARRAYS])
        sent = {
            n: b - 20 * (a - b)
            for (n, a), b in zip(from_record(records[ARRAYS]).items(), before.values(), strict=True)
        }
        return [answer(message, {**records, ARRAYS: to_record(sent)})]

    one_round(layer, to_record(small_model()), FakeGrid(KEYS, {"0": backwards}))
    assert [event.client for event in notes.of(Quarantined)] == ["0"]


EARLY = KEYS[:3]  # their replies are the first to come


def test_three_early_liars_lock_nobody_out() -> None:
    """Nobody is judged before all of the first round have spoken."""
    layer, notes = quarantine()
    tiny = dict.fromkeys(EARLY, spoiling(with_metrics(num_examples=1)))
    rounds(layer, to_record(small_model()), FakeGrid(KEYS, tiny), range(1, 4))
    assert notes.of(Quarantined) == []


def test_early_liars_do_not_make_their_own_claims_usual() -> None:
    layer, notes = quarantine()
    huge = dict.fromkeys(EARLY, spoiling(with_metrics(num_examples=10_000)))
    rounds(layer, to_record(small_model()), FakeGrid(KEYS, huge), range(1, 4))
    assert len(notes.of(Quarantined)) == 9


def test_most_replies_far_from_the_usual_are_an_alarm_and_no_success() -> None:
    layer, _ = quarantine()
    arrays = rounds(layer, to_record(small_model()), FakeGrid(KEYS), range(1, 3))
    many = dict.fromkeys(KEYS[:5], spoiling(with_metrics(num_examples=10_000)))
    with pytest.raises(MostlyOutliers, match="5 of 8 replies are far from what was usual"):
        one_round(layer, arrays, FakeGrid(KEYS, many), 3)


def test_a_run_resumed_with_honest_clients_recovers() -> None:
    layer, _ = quarantine(count_factor=5.0)
    tiny = dict.fromkeys(KEYS[:5], spoiling(with_metrics(num_examples=1)))
    rounds(layer, to_record(small_model()), FakeGrid(KEYS, tiny), range(1, 3))
    resumed, notes = quarantine(count_factor=5.0)
    resumed.load_state_dict(layer.state_dict())
    with pytest.raises(MostlyOutliers):
        one_round(resumed, to_record(small_model()), FakeGrid(KEYS), 3)
    notes.events.clear()
    rounds(resumed, to_record(small_model()), FakeGrid(KEYS), range(3, 5))
    assert notes.of(Quarantined) == []


def test_large_replies_of_the_first_round_wait_only_as_long_as_memory_allows(monkeypatch) -> None:
    monkeypatch.setattr("forager.strategies.layers.quarantine._MOST_HELD", 0)
    layer, notes = quarantine()
    huge = {"1": spoiling(with_metrics(num_examples=10_000))}
    got, _ = one_round(layer, to_record(small_model()), FakeGrid(KEYS, huge))
    assert got is not None
    assert [event.client for event in notes.of(Quarantined)] == [Roster.nameless(501)]


def test_an_unusual_first_round_is_not_set_aside() -> None:
    layer, notes = quarantine()
    zero = {name: np.zeros_like(array) for name, array in small_model().items()}
    assert one_round(layer, to_record(zero), FakeGrid(KEYS))[0] is not None
    assert notes.of(Quarantined) == []


def test_a_half_precision_model_can_have_large_updates() -> None:
    """Norms are taken in double precision: the square of 300 overflows float16."""
    layer, notes = quarantine()
    large = {"w": np.full(4, 3000.0, dtype=np.float16)}
    got, _ = one_round(layer, to_record(large), FakeGrid(KEYS))
    assert notes.of(Quarantined) == []
    assert got is not None


def test_state_carries_norms_and_strikes() -> None:
    layer, _ = quarantine()
    bad = FakeGrid(KEYS, {BAD: spoiling(put_entry(np.nan))})
    rounds(layer, to_record(small_model()), bad, range(1, 3))
    fresh, _ = quarantine()
    fresh.load_state_dict(layer.state_dict())
    assert fresh.federation.strikes == layer.federation.strikes
    assert sum(fresh.federation.strikes.values()) == 2
    assert fresh.own_state() == layer.own_state()


def test_evaluation_replies_are_checked_too() -> None:
    layer, notes = quarantine()
    grid = FakeGrid(
        KEYS,
        {
            BAD: lambda message, key, look: [
                answer(message, {METRICS: MetricRecord({"num-examples": -1, "accuracy": 1.0})})
            ]
        },
    )
    arrays = to_record(small_model())
    messages = layer.configure_evaluate(1, arrays, ConfigRecord(), grid)
    metrics = layer.aggregate_evaluate(1, grid.send_and_receive(messages))
    assert metrics is not None
    weights = np.array([10 + 3 * int(key) for key in GOOD])
    mean = np.average([int(key) / 10 for key in GOOD], weights=weights)
    assert metrics["accuracy"] == pytest.approx(mean)
    assert len(notes.of(Quarantined)) == 1


@pytest.mark.parametrize(("name", "refused"), [("accuracy", 0), ("loss", 1)])
def test_an_undefined_metric_is_dropped_and_a_loss_must_be_finite(name: str, refused: int) -> None:
    layer, notes = quarantine()
    told = MetricRecord({"num-examples": 5, "accuracy": 0.5, "loss": 1.0, name: math.nan})
    grid = FakeGrid(KEYS, {BAD: lambda message, key, look: [answer(message, {METRICS: told})]})
    messages = layer.configure_evaluate(1, to_record(small_model()), ConfigRecord(), grid)
    assert layer.aggregate_evaluate(1, grid.send_and_receive(messages)) is not None
    assert len(notes.of(Quarantined)) == refused


def test_a_long_run_does_not_pile_up_norms() -> None:
    layer, _ = quarantine()
    rounds(layer, to_record(small_model()), FakeGrid(KEYS), range(1, 60))
    assert len(layer.own_state()["norms"]) <= 200
    assert len(layer.own_state()["counts"]) <= 200


HONEST_BYTES = npy(np.zeros(3, np.float32))


@settings(max_examples=300, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, len(HONEST_BYTES) - 1), st.integers(1, 255)).map(
            lambda flip: (
                HONEST_BYTES[: flip[0]]
                + bytes([HONEST_BYTES[flip[0]] ^ flip[1]])
                + HONEST_BYTES[flip[0] + 1 :]
            )
        ),
        st.binary(max_size=100).map(npy_with_header),
        st.binary(max_size=60).map(lambda tail: b"PK\x03\x04" + tail),
    )
)
def test_no_bytes_whatever_stop_a_round(data: bytes) -> None:
    layer, _ = quarantine()
    grid = FakeGrid(["1", BAD], {BAD: spoiling(with_bytes(data))})
    got, _ = one_round(layer, to_record(small_model()), grid)
    assert got is not None


def test_metrics_are_sound_at_a_glance_only_if_those_of_all_are() -> None:
    told: Any = SimpleNamespace(metrics={NUM_EXAMPLES: [5, 7], "train_loss": [-1.0, 2.0]})
    assert _all_sound(told, [], whole=True)
    assert not _all_sound(told, ["train_loss"], whole=True)
    told.metrics["train_loss"][0] = 0.0
    assert _all_sound(told, ["train_loss"], whole=True)
