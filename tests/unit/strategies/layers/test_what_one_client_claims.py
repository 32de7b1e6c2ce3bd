"""One client that claims too much: it is bounded or set aside, and the others go on."""

from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    answer,
    honest_records,
    inside,
    listening_to,
    num_examples,
    one_round,
    small_model,
)
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from forager.core.config import read_config
from forager.core.log.events import Examined, Quarantined
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import (
    CONTROL,
    METRICS,
    NUM_EXAMPLES,
    SECONDS,
    STEPS,
    TRAIN_LOSS,
    WORK,
)
from forager.server_app.callbacks.checkpoint import Checkpoints
from forager.strategies.aggregation.metric_spread import metric_spread
from forager.strategies.build import build_strategy
from forager.strategies.federation.stream_profiles import StreamProfiles
from forager.strategies.layers.examination import Examination
from forager.strategies.layers.quarantine import QuarantineLayer
from forager.strategies.layers.streams import Streams, _Heard
from test_streams_layer import BALANCED, Device

KEYS = [str(i) for i in range(8)]
MODEL = small_model()
FLOATS = [name for name, array in MODEL.items() if array.dtype.kind == "f"]


def with_records(**records: Any):
    def behave(message: Message, key: str, look: int = 0) -> list[Message]:
        return [answer(message, {**honest_records(message, key), **records})]

    return behave


def with_metrics(**metrics: Any):
    def behave(message: Message, key: str, look: int = 0) -> list[Message]:
        told = {NUM_EXAMPLES: num_examples(key), TRAIN_LOSS: 1.0, **metrics}
        return [answer(message, {**honest_records(message, key), METRICS: MetricRecord(told)})]

    return behave


def stack(**keys: Any):
    strategy = build_strategy(
        read_config({"num-clients": 8, "clients-per-round": 8, **keys})  # type: ignore[arg-type]
    )
    return strategy, listening_to(strategy)


def control(size: float) -> Any:
    return to_record({name: np.full_like(MODEL[name], size) for name in FLOATS})


def test_a_change_of_the_control_variate_that_drowns_all_others_is_set_aside() -> None:
    strategy, notes = stack(objective="scaffold")
    honest = {key: with_records(**{CONTROL: control(0.1)}) for key in KEYS}
    one_round(strategy, to_record(MODEL), FakeGrid(KEYS, honest))
    spoilt = honest | {"3": with_records(**{CONTROL: control(1e4)})}
    one_round(strategy, to_record(MODEL), FakeGrid(KEYS, spoilt), 2)
    assert [event.client for event in notes.of(Quarantined)] == ["3"]
    one_round(strategy, to_record(MODEL), FakeGrid(KEYS, honest), 3)
    assert len(notes.of(Quarantined)) == 1


def streams(**settings: Any):
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    layer = Streams(inner, 3, 4, BALANCED, **settings)
    return layer, listening_to(layer)


EARLY = KEYS[:3]


def test_a_device_that_really_is_fast_counts_for_what_it_is() -> None:
    """The limit used to cut the velocities of honest devices that see most of the data."""
    profiles = StreamProfiles()
    for number in (1, 2, 6, 11):
        profiles.advance(number, KEYS)
        for key in KEYS:
            fast = 500.0 if key == "3" else 2.0
            arrived = 50 + int(fast * number)
            told = {"velocity": [fast, 0.0], "capacity": 9, "arrived": arrived, "stored": [9, 0]}
            profiles.hear(key, told)
        assert profiles.velocities()["3"] == [500.0, 0.0]
    profiles.advance(20, KEYS)
    honest = {"velocity": [500.0, 0.0], "capacity": 9, "stored": [9, 0]}
    profiles.hear("3", {**honest, "arrived": 50 + 500 * 11 + 100})  # 100 of 4500 that it claimed
    assert sum(profiles.velocities()["3"]) == pytest.approx(10 * 2.0)
    profiles.advance(30, KEYS)
    profiles.hear("3", {**honest, "arrived": 50 + 500 * 30})
    assert sum(profiles.velocities()["3"]) > 100


def test_who_stores_more_than_ever_arrived_is_not_believed() -> None:
    profiles = StreamProfiles()
    profiles.advance(1, KEYS)
    for key in KEYS:
        profiles.hear(key, {"velocity": [1.0], "capacity": 9, "arrived": 9, "stored": [9]})
    for _ in range(20):  # until the average has come near the claim
        profiles.hear("3", {"velocity": [1e6], "capacity": 9, "arrived": 5, "stored": [9]})
    assert sum(profiles.velocities()["3"]) == pytest.approx(10.0)


def test_nobody_counts_for_many_times_the_usual_velocity_that_did_not_come() -> None:
    layer, notes = streams()
    devices: dict[str, Any] = {key: Device([1.0, 1.0, 0.0], 1, 0, 0, 0) for key in KEYS}
    devices["3"] = Device([0.0, 0.0, 100.0], 0, 0, 0, 5)
    grid = FakeGrid(KEYS, devices)
    one_round(layer, to_record(MODEL), grid)
    one_round(layer, to_record(MODEL), grid, 2)
    shares = {key: sum(row) for key, row in layer.profiles.velocities().items()}
    assert not notes.of(Quarantined)
    assert shares["3"] == pytest.approx(10 * shares["0"])
    assert layer.gradient.estimate[0] > 0.4  # the seven others still count


def test_absurd_velocities_are_not_believed() -> None:
    layer, notes = streams()
    devices: dict[str, Any] = {key: Device([1.0, 1.0, 0.0], 1, 0, 0, 0) for key in KEYS}
    devices |= {key: Device([0.0, 0.0, 1e6], 0, 0, 0, 5) for key in EARLY}
    grid = FakeGrid(KEYS, devices)
    one_round(layer, to_record(MODEL), grid)
    one_round(layer, to_record(MODEL), grid, 2)
    assert {event.client for event in notes.of(Quarantined)} == set(EARLY)
    assert not set(EARLY) & set(layer.profiles.velocities())
    assert layer.gradient.estimate.tolist() == [1, 0, 0, 0]


def test_of_very_unequal_devices_none_is_set_aside() -> None:
    """Of 200 users of the synthetic task, one receives 160 times what is usual."""
    speeds = np.exp(np.random.default_rng(5).normal(4, 2, 200)) + 50
    speeds[33] = 160 * np.median(speeds)
    assert speeds[33] < speeds.sum() / 2
    layer, _ = streams()
    told = {
        n: _Heard({"velocity": [s], "arrived": 9, "stored": [1]}, None)
        for n, s in enumerate(speeds)
    }
    assert layer._learn(told, {}) == {}
    again = {33: told[33], 200: _Heard({"velocity": [2 * speeds.sum()]}, None)}
    assert list(layer._learn(again, {})) == [200]


@pytest.mark.parametrize("size", [0.0, 1e-12], ids=["zero", "tiny"])
def test_early_estimates_of_nothing_set_nobody_aside_also_after_a_save(size: float) -> None:
    devices: dict[str, Any] = {key: Device([1.0, 1.0, 0.0], 1, 0, 0, 0) for key in KEYS}
    devices |= {key: Device([1.0, 1.0, 0.0], size, 0, 0, 0) for key in EARLY}
    layer, resumed = QuarantineLayer(streams()[0]), QuarantineLayer(streams()[0])
    notes, later = listening_to(layer), listening_to(resumed)
    one_round(layer, to_record(MODEL), FakeGrid(KEYS, devices))
    resumed.load_state_dict(layer.state_dict())
    one_round(resumed, to_record(MODEL), FakeGrid(KEYS, devices), 2)
    assert not notes.of(Quarantined) + later.of(Quarantined)


def test_an_estimate_counts_for_at_most_a_few_times_the_usual_norm() -> None:
    layer, notes = streams(norm_factor=3.0)
    devices: dict[str, Any] = {key: Device([1.0, 1.0, 0.0], 1, 0, 0, 0) for key in KEYS}
    devices["3"] = Device([1.0, 1.0, 0.0], -90, 0, 0, 0)
    for number in (1, 2):
        one_round(layer, to_record(MODEL), FakeGrid(KEYS, devices), number)
    assert not notes.of(Quarantined)
    assert layer.gradient.estimate[0] == pytest.approx((7 - 3) / 8)


def test_an_estimate_that_is_absurd_is_set_aside() -> None:
    layer, notes = streams()
    devices: dict[str, Any] = {key: Device([1.0, 1.0, 0.0], 1, 0, 0, 0) for key in KEYS}
    one_round(layer, to_record(MODEL), FakeGrid(KEYS, devices))
    devices["3"] = Device([1.0, 1.0, 0.0], 3e38, 0, 0, 0)
    one_round(layer, to_record(MODEL), FakeGrid(KEYS, devices), 2)
    assert [event.client for event in notes.of(Quarantined)] == ["3"]
    assert np.isfinite(layer.gradient.estimate).all()


def test_what_a_profile_says_besides_is_not_kept() -> None:
    layer, notes = streams()
    grid = FakeGrid("0", {"0": Device([1.0, 1.0, 0.0], poison=b"\x00" * 9)})
    one_round(layer, to_record(MODEL), grid)
    assert not notes.of(Quarantined)
    assert "poison" not in repr(layer.state_dict())


def test_a_loss_of_zero_does_not_freeze_q_fedavg() -> None:
    strategy, _ = stack(aggregator="qfedavg")
    grid = FakeGrid(KEYS, {"3": with_metrics(**{TRAIN_LOSS: 0.0})})
    arrays, _ = one_round(strategy, to_record(MODEL), grid)
    assert arrays is not None
    moved = sum(float(np.abs(from_record(arrays)[n] - MODEL[n]).sum()) for n in FLOATS)
    honest, _ = one_round(stack(aggregator="qfedavg")[0], to_record(MODEL), FakeGrid(KEYS))
    assert honest is not None
    usual = sum(float(np.abs(from_record(honest)[n] - MODEL[n]).sum()) for n in FLOATS)
    assert moved > 0.2 * usual


def test_a_huge_loss_is_not_all_that_q_fedavg_follows() -> None:
    def claiming(loss: float) -> Any:
        grid = FakeGrid(KEYS, {"3": with_metrics(**{TRAIN_LOSS: loss})})
        arrays, _ = one_round(stack(aggregator="qfedavg")[0], to_record(MODEL), grid)
        assert arrays is not None
        return from_record(arrays)

    np.testing.assert_equal(claiming(1e12), claiming(1e3))


def test_accuracies_and_losses_that_cannot_be_do_not_count() -> None:
    honest = [MetricRecord({"accuracy": 0.5, "loss": 1.0}) for _ in range(4)]
    lies = [
        MetricRecord({"accuracy": 1e300, "loss": 1.0}),
        MetricRecord({"accuracy": 0.5, "loss": 1e300}),
    ]
    assert metric_spread([*honest, *lies]) == metric_spread(honest)


def test_a_checkpoint_that_cannot_be_written_does_not_end_a_run(tmp_path, said) -> None:
    class Run:
        round = 1

        def take_snapshot(self) -> dict[str, Any]:
            return {"round": 1, "config": {}, "strange": {b"bytes"}}

    Checkpoints(tmp_path, every=1, keep=2).on_round_end(Run())  # type: ignore[arg-type]
    assert any("could not be written" in line for line in said)
    assert not list(tmp_path.glob("round-*"))


def test_config_records_of_other_types_do_not_matter() -> None:
    strategy, notes = stack()
    grid = FakeGrid(KEYS, {"3": with_records(strange=ConfigRecord({"a": b"x" * 100}))})
    arrays, _ = one_round(strategy, to_record(MODEL), grid)
    assert arrays is not None
    assert not notes.of(Quarantined)


@pytest.mark.parametrize("seconds", [1e-320, 0.0, 1e9, 1e300], ids=str)
def test_three_who_lie_about_their_speed_change_the_work_of_nobody_else(seconds: float) -> None:
    strategy, notes = stack(work="by-speed", **{"local-steps": 10})
    told = dict.fromkeys(KEYS, with_metrics(**{SECONDS: 2.0}))
    grid = FakeGrid(KEYS, told | dict.fromkeys(EARLY, with_metrics(**{SECONDS: seconds})))
    with np.errstate(all="raise", under="ignore"):
        for number in (1, 2, 3):
            one_round(strategy, to_record(MODEL), grid, number)
    work = [m.content[WORK][STEPS] for m in grid.sent[-8:] if WORK in m.content]
    assert work.count(10) >= 5
    assert not notes.of(Quarantined)


def test_a_client_that_omits_the_metric_spoils_no_evaluation_of_a_diagnosis() -> None:
    held_out = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2}
    strategy, _ = stack(**{"data-selector": "examined", "num-server-rounds": 1, **held_out})
    notes = listening_to(inside(strategy, Examination))

    def omitting(message: Message, key: str, look: int = 0) -> list[Message]:
        if message.metadata.message_type == "evaluate":
            return [answer(message, {METRICS: MetricRecord({NUM_EXAMPLES: 9, "loss": 1.0})})]
        return [answer(message, honest_records(message, key))]

    grid = FakeGrid(KEYS, {"0": omitting})
    asked = list(strategy.configure_evaluate(1, to_record(MODEL), ConfigRecord(), grid))
    strategy.aggregate_evaluate(1, grid.send_and_receive(asked))
    (event,) = notes.of(Examined)
    served = dict(zip(event.clients, event.columns["served"], strict=True))
    assert served == {key: int(key) / 10 if key != "0" else None for key in KEYS}
