"""Whatever the uplink: never more bytes than whole models, the instructions included."""

import logging

import numpy as np
import pytest
from fakes import FakeGrid, honest_records, rounds, small_model
from flwr.app import ConfigRecord
from forager.core.config import read_config
from forager.core.wire import sparse
from forager.core.wire.arrays import from_record, record_bytes, to_record
from forager.core.wire.keys import ARRAYS, CONFIG, SPARSE
from forager.strategies.build import build_strategy
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = ["0", "1", "2"]
UPLINKS = ["top-k", "top-k-plain", "compact", "int8"]


def stack(uplink: str, density: float = 0.1):
    keys = {"aggregator": "fedavg", "uplink": uplink, "num-clients": 3, "clients-per-round": 3}
    return build_strategy(read_config({**keys, "top-k.density": density}))


@pytest.mark.parametrize("uplink", UPLINKS)
@given(size=st.integers(1, 200), cut=st.integers(0, 200), share=st.sampled_from([0.1, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_never_more_than_whole_models(uplink: str, size: int, cut: int, share: float) -> None:
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    model = to_record({"a": values[: min(cut, size)], "b": values[min(cut, size) :]})
    layer, grid = stack(uplink, share), FakeGrid(KEYS)
    (message, *_) = layer.configure_train(1, model, ConfigRecord(), grid)
    records = honest_records(message, "1")
    sent = record_bytes(records[SPARSE]) if SPARSE in records else record_bytes(records[ARRAYS])
    told = message.content.config_records[CONFIG]
    asked = ConfigRecord({name: told[name] for name in told if name.startswith("uplink-")})
    assert sent + record_bytes(asked) <= record_bytes(model)
    if size == 200:
        assert (SPARSE in records) == (share < 1 or uplink not in ("top-k", "top-k-plain"))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_the_bound_holds_wherever_the_largest_entries_are(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 400))
    places = data.draw(st.sets(st.integers(0, size - 1)))
    update = np.zeros(size, np.float32)
    update[sorted(places)] = 1
    for values in ("float32", "float16"):
        coded = sparse.encode(update, len(places), values)
        assert len(coded) <= sparse.most_bytes(size, len(places), values)


@pytest.mark.parametrize("uplink", UPLINKS)
def test_a_tiny_model_is_trained_as_with_the_dense_uplink(uplink: str) -> None:
    tiny = {name: array for name, array in small_model().items() if name == "layer.bias"}
    got, wanted = (
        from_record(rounds(stack(name), to_record(tiny), FakeGrid(KEYS), range(1, 4)))
        for name in (uplink, "dense")
    )
    np.testing.assert_array_equal(got["layer.bias"], wanted["layer.bias"])


@pytest.mark.parametrize("uplink", ["top-k", "compact", "int8"])
def test_that_models_are_sent_whole_is_said_once(
    uplink: str, caplog: pytest.LogCaptureFixture
) -> None:
    layer = stack(uplink)
    tiny = to_record({"bias": np.zeros(4, np.float32)})
    with caplog.at_level("INFO", "forager"):
        for _ in range(3):  # a first round that is tried again
            list(layer.configure_train(1, tiny, ConfigRecord(), FakeGrid(KEYS)))
    assert sum("clients send whole models" in line for line in caplog.messages) == 1


def test_it_is_said_once_that_whole_models_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    tiny = to_record({"layer.bias": small_model()["layer.bias"]})
    with caplog.at_level(logging.INFO, "forager"):
        rounds(stack("top-k"), tiny, FakeGrid(KEYS), range(1, 4))
    assert caplog.text.count("the model is too small for a shorter uplink") == 1
