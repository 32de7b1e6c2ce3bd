"""The server's side of streams: profiles, plans, the estimate of the global gradient."""

import random
from typing import Any

import numpy as np
import pytest
from fakes import (
    Arrays,
    FakeGrid,
    Notes,
    answer,
    honest_records,
    listening_to,
    one_round,
    small_model,
)
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from forager.core.log.events import Quarantined, StoragePlanned, StreamsStored
from forager.core.methods.ode import OdeSettings
from forager.core.tasks.streams.arrivals import LabelRates
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import (
    CLIENT,
    CLIENT_KEY,
    CONFIG,
    ESTIMATE,
    INGEST,
    METRICS,
    NUM_EXAMPLES,
    PLAN,
    ROUND,
)
from forager.selectors.stream_selectors.storage_plan import StoragePlan
from forager.strategies.layers.base import Layer
from forager.strategies.layers.streams import Streams

SIZE = 4
BALANCED = OdeSettings()


def profile(velocity: list[float], **other: Any) -> ConfigRecord:
    told: dict[str, Any] = {"capacity": 6, "stored": [0] * len(velocity), "arrived": 9, "kept": 3}
    return ConfigRecord({**told, "velocity": velocity, **other})


def gradient(*values: float) -> Arrays:
    return {"estimate": np.array(values, dtype=np.float32)}


class Device:
    """A client that tells its profile, and its gradient when it trains."""

    def __init__(self, velocity: list[float], *values: float, **other: Any) -> None:
        self.velocity, self.values, self.other = velocity, values, other

    def __call__(self, message: Message, key: str, look: int = 0) -> list[Message]:
        records: dict[str, Any] = {CLIENT: ConfigRecord({CLIENT_KEY: key})}
        if message.metadata.message_type == INGEST:
            records[METRICS] = MetricRecord({NUM_EXAMPLES: 1})
        else:
            records = honest_records(message, key)
            if self.values:
                records[ESTIMATE] = to_record(gradient(*self.values))
        return [answer(message, {**records, PLAN: profile(self.velocity, **self.other)})]


def streams(**settings: Any) -> tuple[Streams, Notes]:
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    own = {name: settings.pop(name) for name in OdeSettings.model_fields.keys() & settings.keys()}
    ode = BALANCED.model_copy(update=own) if settings.pop("plans", True) else None
    layer = Streams(inner, 3, SIZE, ode, **settings)
    return layer, listening_to(layer)


def play(layer: Layer, grid: FakeGrid, number: int = 1) -> dict[str, dict[str, Any]]:
    """Play a round; return the records that each client was told of its stream."""
    before = len(grid.of_kind("train"))
    one_round(layer, to_record(small_model()), grid, number)
    return {
        grid.nodes[message.metadata.dst_node_id]: dict(message.content.items())
        for message in grid.of_kind("train")[before:]
    }


def test_clients_are_asked_once_and_told_what_to_store() -> None:
    layer, notes = streams(plan=StoragePlan(0.2, 1, 0, "even", True))
    grid = FakeGrid("01", {"0": Device([4.0, 1.0, 0.0]), "1": Device([1.0, 2.0, 1.0])})
    told = play(layer, grid)
    assert list(told["0"][PLAN]["quota"]) == [6, 0, 0]
    assert list(told["1"][PLAN]["quota"]) == [0, 3, 3]
    weights = np.array(told["0"][PLAN]["class-weights"])
    assert weights @ [6, 3, 3] == pytest.approx(12)  # all places taken: as many as are stored
    assert ESTIMATE not in told["0"]
    play(layer, grid, 2)
    assert len(grid.of_kind(INGEST)) == 2
    assert len(notes.of(StoragePlanned)) == 1


def test_by_default_stores_are_divided_like_what_arrives_and_clients_count_by_it() -> None:
    layer, notes = streams()
    grid = FakeGrid("01", {"0": Device([8.0, 4.0, 0.0]), "1": Device([1.0, 2.0, 0.0])})
    told = play(layer, grid)
    assert list(told["0"][PLAN]["quota"]) == [4, 2, 0]
    assert list(told["1"][PLAN]["quota"]) == [2, 4, 0]
    assert told["0"][PLAN]["class-weights"] == pytest.approx([1.0, 1.0, 0.0])
    (plan,) = notes.of(StoragePlanned)
    assert (plan.stored, plan.holders) == ([6, 6, 0], [2, 2, 0])


def test_the_estimate_is_the_mean_of_last_reports_by_velocity() -> None:
    layer, _ = streams()
    first, second = Device([1.0, 0.0, 0.0], 4, 0, 0, 0), Device([1.0, 2.0, 0.0], 0, 4, 0, 0)
    grid = FakeGrid("01", {"0": first, "1": second})
    play(layer, grid)
    told = play(layer, grid, 2)
    assert from_record(told["0"][ESTIMATE])["estimate"].tolist() == [1, 3, 0, 0]
    # Whoever is away still counts, by what it said last; who is gone for good does not.
    grid.nodes = {node: key for node, key in grid.nodes.items() if key == "1"}
    play(layer, grid, 3)
    told = play(layer, grid, 4)
    assert from_record(told["1"][ESTIMATE])["estimate"].tolist() == [1, 3, 0, 0]
    play(layer, grid, 60)
    told = play(layer, grid, 61)
    assert from_record(told["1"][ESTIMATE])["estimate"].tolist() == [0, 4, 0, 0]


def test_a_new_plan_is_made_only_when_something_changed() -> None:
    layer, notes = streams()

    def plans_after(rounds: range, first: list[float], second: list[float]) -> int:
        devices = {"0": Device(first, arrived=900), "1": Device(second, arrived=900)}
        grid.behaviours = {**grid.behaviours, **devices}
        for number in rounds:
            play(layer, grid, number)
        return len(notes.of(StoragePlanned))

    grid = FakeGrid("01", {})
    assert plans_after(range(1, 2), [4.0, 1.0, 0.0], [1.0, 2.0, 0.0]) == 1
    assert plans_after(range(2, 12), [4.5, 1.0, 0.0], [1.0, 2.0, 0.0]) == 1  # a little faster
    assert plans_after(range(12, 14), [30.0, 1.0, 0.0], [1.0, 2.0, 0.0]) == 2  # much faster
    assert plans_after(range(14, 23), [30.0, 1.0, 0.0], [1.0, 2.0, 0.1]) == 2  # not so soon again
    # A label that nobody had: however rare, it has a place.
    assert plans_after(range(23, 24), [30.0, 1.0, 0.0], [1.0, 2.0, 0.1]) == 3
    assert play(layer, grid, 24)["1"][PLAN]["quota"][2] > 0
    grid.nodes[900] = "2"
    grid.behaviours = {**grid.behaviours, "2": Device([0.0, 0.0, 1.0])}
    # One of three is new: that cannot wait.
    assert list(play(layer, grid, 25)["2"][PLAN]["quota"]) == [0, 0, 6]


def test_whoever_is_away_for_some_rounds_is_planned_for() -> None:
    layer, notes = streams()
    devices = {"0": Device([4.0, 1.0, 0.0]), "1": Device([1.0, 2.0, 0.0])}
    grid = FakeGrid("01", devices)
    told = play(layer, grid)
    everyone = dict(grid.nodes)
    grid.nodes = {node: key for node, key in everyone.items() if key == "1"}
    for number in range(2, 12):
        play(layer, grid, number)
    assert notes.of(StreamsStored)[-1].clients == 1
    asked = len(grid.of_kind(INGEST))
    grid.nodes = everyone
    assert list(play(layer, grid, 12)["0"][PLAN]["quota"]) == list(told["0"][PLAN]["quota"])
    assert len(grid.of_kind(INGEST)) == asked
    assert len(notes.of(StoragePlanned)) == 1
    grid.nodes = {node: key for node, key in everyone.items() if key == "1"}
    for number in range(13, 70):
        play(layer, grid, number)
    assert [event.clients for event in notes.of(StoragePlanned)] == [2, 1]  # gone for good


def test_a_capacity_that_has_changed_is_planned_with() -> None:
    layer, _ = streams()
    grid = FakeGrid("0", {"0": Device([4.0, 1.0, 0.0])})
    assert sum(play(layer, grid)["0"][PLAN]["quota"]) == 6
    grid.behaviours = {"0": Device([4.0, 1.0, 0.0], capacity=3)}
    quotas = [sum(play(layer, grid, number)["0"][PLAN]["quota"]) for number in range(2, 14)]
    assert quotas == [6] * 9 + [3] * 3


def test_an_empty_stream_is_asked_for_less_and_less_often() -> None:
    layer, _ = streams(plans=False)
    grid = FakeGrid("0", {"0": Device([0.0, 0.0, 0.0])})
    asked = []
    for number in range(1, 101):
        before = len(grid.of_kind(INGEST))
        play(layer, grid, number)
        asked += [number] * (len(grid.of_kind(INGEST)) - before)
    assert asked == [1, 2, 4, 8, 16, 32, 64]


class Measured(Device):
    """A client that measures how fast labels come, as a device does."""

    def __init__(self, velocity: list[float], seed: int) -> None:
        super().__init__(velocity)
        self.true, self.rng = np.array(velocity), np.random.default_rng(seed)
        self.rates, self.round, self.arrived = LabelRates(), 0, 0

    def __call__(self, message: Message, key: str, look: int = 0) -> list[Message]:
        passed = int(message.content.config_records[CONFIG][ROUND]) - self.round
        came = self.rng.poisson(self.true * passed)
        self.rates.observe(np.repeat(np.arange(len(came)), came), passed)
        self.round += passed
        self.arrived += int(came.sum())
        self.velocity = self.rates.per_round(len(came)).tolist()
        self.other = {"arrived": self.arrived}
        return super().__call__(message, key, look)


@pytest.mark.parametrize(("rounds", "availability"), [(300, 1.0), (100, 0.9)])
@pytest.mark.parametrize("seed", [0, 1])
def test_measured_velocities_and_absences_make_few_plans(
    rounds: int, availability: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    random.seed(seed)  # Flower's FedAvg draws from it
    layer, notes = streams(clients_per_label=3)
    layer.inner.fraction_train = 0.5  # type: ignore[attr-defined]
    speeds = 4 * rng.dirichlet([0.5] * 3, 10)
    devices = {str(n): Measured(row.tolist(), seed + n) for n, row in enumerate(speeds)}
    grid = FakeGrid([str(n) for n in range(10)], devices)
    everyone = dict(grid.nodes)
    for number in range(1, rounds + 1):
        here = {node: key for node, key in everyone.items() if rng.random() < availability}
        grid.nodes = here or everyone
        play(layer, grid, number)
    assert 1 <= len(notes.of(StoragePlanned)) <= 3


def test_a_client_whose_labels_are_not_known_yet_is_not_told_to_store_nothing() -> None:
    layer, _ = streams()
    grid = FakeGrid("01", {"0": Device([4.0, 1.0, 0.0]), "1": Device([0.0, 0.0, 0.0])})
    told = play(layer, grid)
    assert "quota" not in told["1"][PLAN]
    assert len(told["1"][PLAN]["class-weights"]) == 3
    grid.behaviours = {**grid.behaviours, "1": Device([0.0, 0.0, 2.0])}
    assert list(play(layer, grid, 2)["1"][PLAN]["quota"]) == [0, 0, 6]  # it was asked again


@pytest.mark.parametrize(
    "lie",
    [
        Device([1.0, 1.0], 0, 0, 0, 0),
        Device([1.0, -1.0, 0.0]),
        Device([1.0, float("nan"), 0.0]),
        Device([1.0, 1.0, 0.0], capacity=-3),
        Device([1.0, 1.0, 0.0], 0, 0, 0),
        Device([1.0, 1.0, 0.0], 0, 0, 0, float("nan")),
    ],
    ids=["labels", "negative", "nan", "capacity", "size", "gradient"],
)
def test_what_makes_no_sense_is_set_aside_and_the_round_goes_on(lie: Device) -> None:
    layer, notes = streams()
    grid = FakeGrid("01", {"0": Device([4.0, 1.0, 0.0], 1, 0, 0, 0), "1": lie})
    play(layer, grid)
    told = play(layer, grid, 2)
    assert {event.client for event in notes.of(Quarantined)} == {"1"}
    assert from_record(told["0"][ESTIMATE])["estimate"].tolist() == [1, 0, 0, 0]


def test_the_oracle_asks_everyone_for_the_gradient_of_this_round() -> None:
    layer, _ = streams(estimator="exact")

    class Exact(Device):
        def __call__(self, message: Message, key: str, look: int = 0) -> list[Message]:
            if message.metadata.message_type == INGEST and message.content.array_records:
                metrics = MetricRecord({NUM_EXAMPLES: 1})
                estimate = to_record(gradient(*self.values))
                return [answer(message, {METRICS: metrics, ESTIMATE: estimate})]
            return Device(self.velocity)(message, key, look)

    grid = FakeGrid(
        "01", {"0": Exact([1.0, 0.0, 0.0], 4, 0, 0, 0), "1": Exact([3.0, 0.0, 0.0], 0, 4, 0, 0)}
    )
    told = play(layer, grid)
    assert from_record(told["0"][ESTIMATE])["estimate"].tolist() == [1, 3, 0, 0]


def test_rules_without_a_plan_are_told_nothing() -> None:
    layer, notes = streams(plans=False)
    told = play(layer, FakeGrid("0", {"0": Device([1.0, 1.0, 0.0])}))
    assert not {PLAN, ESTIMATE} & set(told["0"])
    assert notes.of(StreamsStored)[0].arrived == 9


def test_state_survives() -> None:
    layer, _ = streams()
    devices = {"0": Device([4.0, 1.0, 0.0], 1, 2, 3, 4), "1": Device([1.0, 2.0, 1.0], 4, 3, 2, 1)}
    play(layer, FakeGrid("01", devices))
    again, notes = streams()
    again.load_state_dict(layer.state_dict())
    left, right = (play(part, FakeGrid("01", devices), 2) for part in (layer, again))
    assert not notes.of(StoragePlanned)
    for key in "01":
        assert dict(left[key][PLAN]) == dict(right[key][PLAN])
        estimates = [from_record(told[key][ESTIMATE])["estimate"] for told in (left, right)]
        np.testing.assert_array_equal(*estimates)


def test_it_is_written_down_how_many_classes_a_client_stores() -> None:
    layer, notes = streams()
    devices = [Device([1.0, 1.0, 1.0], stored=stored) for stored in ([3, 0, 1], [2, 0, 0])]
    play(layer, FakeGrid(["0", "1"], dict(zip("01", devices, strict=True))))
    event = notes.of(StreamsStored)[-1]
    assert (event.clients, event.stored, event.classes) == (2, [5, 0, 1], 1.5)
