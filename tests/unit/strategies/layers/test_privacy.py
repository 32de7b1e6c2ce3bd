"""The account of privacy, and the noise that it is an account of."""

import copy
import json
import math
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    answer,
    assert_same,
    honest_records,
    listening_to,
    never,
    one_round,
    rounds,
)
from flwr.app import ConfigRecord, Message
from forager.core.config import ConfigError, read_config
from forager.core.entropy import protective
from forager.core.learning.clipping import clipped
from forager.core.log.events import Event, PrivacySpent, Selected, as_events
from forager.core.methods.base import load
from forager.core.methods.catalogue import all_methods, methods
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS
from forager.strategies.build import build_strategy
from forager.strategies.federation.accountant import gaussian_delta, gaussian_epsilon
from forager.strategies.federation.releases import Releases
from forager.strategies.layers import privacy
from forager.strategies.layers.base import Layer
from forager.strategies.layers.privacy import CentralNoise, PrivacyLedger
from forager.tools.engine.local import run_local
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

KEYS = [str(i) for i in range(8)]
E = TypeVar("E", bound=Event)


def delta_by_definition(epsilon: float, multiplier: float) -> float:
    """The expectation of (1 - exp(epsilon - loss))+ over the privacy loss, which is normal."""
    mu = 1 / multiplier
    density = norm(loc=mu**2 / 2, scale=mu).pdf
    upper = mu**2 / 2 + 12 * mu
    if upper <= epsilon:
        return 0.0
    return float(quad(lambda loss: density(loss) * -math.expm1(epsilon - loss), epsilon, upper)[0])


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 3.0])
def test_delta_is_what_the_definition_says(epsilon: float, multiplier: float) -> None:
    wanted = delta_by_definition(epsilon, multiplier)
    assert gaussian_delta(epsilon, multiplier) == pytest.approx(wanted, rel=1e-5, abs=1e-12)


@settings(deadline=None)
@given(st.floats(0.3, 20), st.integers(1, 200), st.floats(1e-8, 1e-2))
def test_epsilon_is_the_least_that_keeps_delta(s: float, releases: int, delta: float) -> None:
    epsilon = gaussian_epsilon(delta, s, releases)
    if math.isinf(epsilon):
        assert gaussian_delta(512, s, releases) > delta, "no bound is told only where it is useless"
        return
    assert gaussian_delta(epsilon, s, releases) <= delta * (1 + 1e-6)
    assert epsilon == 0 or gaussian_delta(epsilon * 0.99, s, releases) > delta
    assert gaussian_epsilon(delta, s, releases + 1) >= epsilon


def test_many_releases_are_one_with_less_noise() -> None:
    assert gaussian_epsilon(1e-5, 4.0, 16) == pytest.approx(gaussian_epsilon(1e-5, 1.0, 1))


# Of dp-accounting 0.6: PLDAccountant(NeighboringRelation.REPLACE_ONE), composed with
# SelfComposedDpEvent(GaussianDpEvent(multiplier), releases)
REFERENCE = [
    (1.0, 1, 1e-5, 9.9973),
    (1.0, 4, 1e-5, 24.3816),
    (1.1, 9, 1e-5, 37.4025),
    (4.0, 16, 1e-6, 10.9972),
    (2.0, 100, 1e-5, 91.8173),
    (0.5, 3, 1e-5, 52.7706),
]


@pytest.mark.parametrize("central", [True, False], ids=["central", "local"])
@pytest.mark.parametrize(("multiplier", "releases", "delta", "epsilon"), REFERENCE)
def test_epsilon_is_that_of_another_accountant_for_one_client_replaced(
    central: bool, multiplier: float, releases: int, delta: float, epsilon: float
) -> None:
    layer = PrivacyLedger(aggregator(), multiplier, delta, central=central)
    notes, grid = listening_to(layer), FakeGrid(KEYS)
    for number in range(1, releases + 1):
        one_round(layer, to_record(SMALL), grid, number)
    assert notes.of(PrivacySpent)[-1].epsilon_most == pytest.approx(epsilon, abs=2e-4)


def aggregator(name: str = "fedavg") -> Any:
    config = read_config({"aggregator": name, "num-clients": 8, "clients-per-round": 8})
    return load(methods("aggregator")[name].core)(config)


SMALL = {"w": np.zeros(3, np.float32), "steps": np.array(3)}
MODEL = {"w": np.zeros(40_000, np.float32), "steps": np.array(3)}


def loud(message: Message, key: str, look: int) -> list[Message]:
    """Send a change that is far too long, and claim to hold most of the data."""
    records = honest_records(message, key)
    arrays = from_record(records["arrays"])
    records["arrays"] = to_record({"w": np.full_like(arrays["w"], 50), "steps": arrays["steps"]})
    records["metrics"]["num-examples"] = 10**6
    return [answer(message, records)]


def test_no_client_changes_the_mean_by_more_than_its_share() -> None:
    layer = CentralNoise(aggregator(), clip=1.0, multiplier=0.0)
    with_liar, _ = one_round(layer, to_record(MODEL), FakeGrid(KEYS, {"3": loud}))
    without, _ = one_round(layer, to_record(MODEL), FakeGrid(KEYS))
    assert with_liar is not None
    assert without is not None
    change = from_record(with_liar)["w"] - from_record(without)["w"]
    assert np.linalg.norm(change) <= 2 / len(KEYS) + 1e-6


def test_the_noise_is_as_large_as_the_account_says() -> None:
    quiet = CentralNoise(aggregator(), clip=2.0, multiplier=0.0)
    noisy = CentralNoise(aggregator(), clip=2.0, multiplier=3.0)
    pair = [one_round(layer, to_record(MODEL), FakeGrid(KEYS))[0] for layer in (quiet, noisy)]
    before, after = (from_record(arrays) for arrays in pair if arrays is not None)
    noise = after["w"] - before["w"]
    assert noise.std() == pytest.approx(3.0 * 2.0 / len(KEYS), rel=0.02)
    assert after["steps"].dtype == MODEL["steps"].dtype


def test_what_gets_no_noise_stays_the_servers() -> None:
    """The largest counter would tell how long somebody trained, and so how much data it has."""
    layer = CentralNoise(aggregator(), clip=1.0, multiplier=1.0)
    got, metrics = one_round(layer, to_record(MODEL), FakeGrid(KEYS))
    assert got is not None
    assert from_record(got)["steps"] == 3
    assert set(metrics or {}) <= {"num-examples"}


def drawn(layer: CentralNoise, number: int = 1, cohort: str = "") -> Any:
    """The model of a round in which nobody changes anything: nothing but noise."""
    with layer.federation.in_cohort(cohort):
        got, _ = one_round(layer, to_record(MODEL), FakeGrid(KEYS), number)
    assert got is not None
    return from_record(got)["w"]


@pytest.mark.parametrize("simulated", [True, False])
def test_no_two_cohorts_and_no_two_rounds_share_noise(simulated: bool) -> None:
    """Else the difference of two models would be free of it."""
    layers = [CentralNoise(aggregator(), clip=1.0, multiplier=1.0, seed=4) for _ in range(2)]
    for layer in layers:
        layer.federation.simulated = simulated
    a, b = drawn(layers[0], 1, "0"), drawn(layers[1], 1, "1")
    later = drawn(layers[0], 2, "0")
    for other in (b, later):
        assert np.std(a - other) == pytest.approx(math.sqrt(2) / len(KEYS), rel=0.05)


def test_noise_can_be_foreseen_in_simulation_only() -> None:
    def noise(simulated: bool) -> Any:
        layer = CentralNoise.of_run(aggregator(), read_config({"seed": 4}))
        layer.federation.simulated = simulated
        return drawn(layer)

    np.testing.assert_array_equal(noise(True), noise(True))
    assert not np.array_equal(noise(False), noise(False))


class Watching(Layer):
    """Keeps what the layer outside hands in."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.seen: list[list[Message]] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.seen.append(list(replies))
        return super().aggregate_train(server_round, copy.deepcopy(self.seen[-1]))


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_the_strategy_inside_sees_nothing_but_the_noisy_mean(name: str) -> None:
    """Else moments and steps would tell what the noise is to hide."""
    watching, start = Watching(aggregator(name)), to_record(MODEL)
    noisy = CentralNoise(watching, clip=2.0, multiplier=3.0)
    got, _ = one_round(noisy, start, FakeGrid(KEYS))
    ((mean,),) = watching.seen
    quiet, _ = one_round(
        CentralNoise(aggregator(), clip=2.0, multiplier=0.0), start, FakeGrid(KEYS)
    )
    assert quiet is not None
    noise = from_record(mean.content.array_records[ARRAYS])["w"] - from_record(quiet)["w"]
    assert noise.std() == pytest.approx(3.0 * 2.0 / len(KEYS), rel=0.02)
    # What it makes of that is a function of nothing else.
    alone = aggregator(name)
    list(alone.configure_train(1, start, ConfigRecord(), FakeGrid(KEYS)))
    assert_same(got, alone.aggregate_train(1, [copy.deepcopy(mean)])[0])


@pytest.mark.parametrize("name", ["fedadam", "fedyogi"])
def test_adaptive_steps_are_taken_after_the_noise(name: str) -> None:
    """However much noise there is, such a step is no longer than its learning rate allows."""
    layer = CentralNoise(aggregator(name), clip=1.0, multiplier=1000.0)
    got = rounds(layer, to_record(MODEL), FakeGrid(KEYS), range(1, 4))
    step = np.abs(from_record(got)["w"])
    assert 1000.0 / len(KEYS) > 100
    assert 0.01 < step.max() < 1.0


def test_fine_tuning_is_covered_by_the_noise_too() -> None:
    stack = build_strategy(read_config({"privacy": "central-dp", "fine-tune.epochs": 1}))
    assert "CentralNoise(FineTune(FlowerAggregator(FedAvg)))" in stack.describe()


def test_nothing_of_the_noise_is_kept_and_a_simulated_run_repeats_it() -> None:
    def made() -> CentralNoise:
        layer = CentralNoise(aggregator(), clip=1.0, multiplier=1.0, seed=1)
        layer.federation.simulated = True
        return layer

    whole, half, resumed = made(), made(), made()
    model = rounds(whole, to_record(MODEL), FakeGrid(KEYS), range(1, 4))
    middle = rounds(half, to_record(MODEL), FakeGrid(KEYS), range(1, 3))
    assert half.own_state() == {}
    resumed.load_state_dict(half.state_dict())
    again = rounds(resumed, middle, FakeGrid(KEYS), range(3, 4))
    np.testing.assert_array_equal(from_record(again)["w"], from_record(model)["w"])


@pytest.mark.parametrize("central", [True, False], ids=["central", "local"])
def test_what_was_released_before_a_crash_stays_released(tmp_path: Path, central: bool) -> None:
    """The run dies in round 9 and goes on from round 5: rounds 6 to 9 were released twice."""
    file = tmp_path / "releases.jsonl"

    def made() -> PrivacyLedger:
        layer = PrivacyLedger(aggregator(), 1.0, central=central)
        layer.federation.releases = Releases(file)
        return layer

    first, grid = made(), FakeGrid(KEYS)
    model = rounds(first, to_record(SMALL), grid, range(1, 6))
    saved = first.state_dict()
    rounds(first, model, grid, range(6, 10))
    with file.open("ab") as torn:
        torn.write(b'{"round": 10, "clients": ["0", ')
    again = made()
    notes = listening_to(again)
    again.load_state_dict(saved)
    rounds(again, model, grid, range(6, 11))
    assert again.federation.releases.most == 9 + 5
    epsilon = notes.of(PrivacySpent)[-1].epsilon_most
    assert epsilon == pytest.approx(gaussian_epsilon(1e-5, 0.5, 14))


def test_going_back_to_an_earlier_state_takes_nothing_off_the_account() -> None:
    layer, grid = PrivacyLedger(aggregator(), 1.0), FakeGrid(KEYS)
    rounds(layer, to_record(SMALL), grid, range(1, 3))
    saved = layer.state_dict()
    rounds(layer, to_record(SMALL), grid, range(3, 6))
    layer.load_state_dict(saved)
    assert layer.federation.releases.most == 5


def test_a_release_is_on_the_disk_before_a_message_leaves(tmp_path: Path) -> None:
    layer = PrivacyLedger(aggregator(), 1.0)
    layer.federation.releases = Releases(tmp_path / "releases.jsonl")
    messages = layer.configure_train(1, to_record(SMALL), ConfigRecord(), FakeGrid(KEYS))
    assert len(list(messages)) == len(KEYS)
    assert Releases(tmp_path / "releases.jsonl").most == 1
    layer.federation.releases = Releases(tmp_path / "gone" / "releases.jsonl")
    with pytest.raises(FileNotFoundError):  # what cannot be written down is not released
        layer.configure_train(2, to_record(SMALL), ConfigRecord(), FakeGrid(KEYS))


def test_a_release_counts_even_if_the_reply_is_lost() -> None:
    layer = PrivacyLedger(aggregator(), multiplier=2.0)
    notes, grid = listening_to(layer), FakeGrid(KEYS, dict.fromkeys(KEYS, never))
    layer.federation.nodes(grid)
    for number in (1, 2):
        one_round(layer, to_record(MODEL), grid, number)
    assert layer.federation.releases.counts == dict.fromkeys(KEYS, 2)
    spent = [event.epsilon_most for event in notes.of(PrivacySpent)]
    assert spent == pytest.approx([gaussian_epsilon(1e-5, 1.0, count) for count in (1, 2)])


def test_clipping_leaves_short_updates_alone() -> None:
    before = {"w": np.ones(4, np.float32), "n": np.array(1)}
    after = {"w": np.full(4, 1.1, np.float32), "n": np.array(7)}
    got = clipped(before, after, norm=1.0)
    np.testing.assert_array_equal(got["w"], after["w"])
    assert got["n"] == 1, "what is not clipped is not sent"


@pytest.fixture
def small(tmp_path: Any) -> dict[str, Any]:
    return {
        "output-dir": str(tmp_path / "runs"),
        "data.cache-dir": str(tmp_path / "cache"),
        "num-clients": 6,
        "clients-per-round": 3,
        "num-server-rounds": 4,
        "local-steps": 2,
    }


def events(result: Any, kind: type[E]) -> list[E]:
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [event for event in as_events(map(json.loads, lines)) if isinstance(event, kind)]


@pytest.mark.parametrize(
    "selector", ["random", "aoi", "round-robin", "cosage", "power-of-choice", "oort"]
)
def test_central_noise_goes_with_every_way_to_choose(small: dict[str, Any], selector: str) -> None:
    result = run_local({**small, "privacy": "central-dp", "client-selector": selector})
    assert result.reason == "completed"
    assert [len(event.chosen) for event in events(result, Selected)] == [3] * 4
    spent = [event.epsilon_most for event in events(result, PrivacySpent)]
    assert spent == pytest.approx([gaussian_epsilon(1e-5, 0.5, n) for n in (1, 2, 3, 4)])
    assert [row["epsilon"] for row in result.rounds if row["round"]] == pytest.approx(spent)
    report = (result.folder / "report.html").read_text()
    assert all(event.scores is None for event in events(result, Selected)), "they got no noise"
    assert all("train-loss" not in row for row in result.rounds)
    assert f"Privacy: epsilon {spent[-1]:.2f} at delta 1e-05." in report


def test_no_noise_of_a_run_with_cohorts_is_drawn_twice(
    small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[tuple[Any, ...]] = []

    def noted(simulated: bool, *seed: int) -> np.random.Generator:
        seeds.append((simulated, *seed))
        return protective(simulated, *seed)

    monkeypatch.setattr(privacy, "protective", noted)
    ifca = {"cohorts": "ifca", "cohort.number": 2, "clients-per-round": 0, "fraction-train": 1.0}
    result = run_local({**small, **ifca, "privacy": "central-dp"})
    assert len(set(seeds)) == len(seeds) > 4, "some round trained both cohorts"
    assert {seed[0] for seed in seeds} == {True}, "the local engine is a simulation"
    spent = [event.epsilon_most for event in events(result, PrivacySpent)]
    assert spent == pytest.approx([gaussian_epsilon(1e-5, 0.5, n) for n in (1, 2, 3, 4)])


def test_a_resumed_run_still_counts_what_it_released_and_ends_alike(small: dict[str, Any]) -> None:
    keys = {**small, "privacy": "central-dp", "checkpoint.every": 2, "checkpoint.keep": 5}
    whole = run_local(keys)
    model = (whole.folder / "model.safetensors").read_bytes()
    earlier = whole.folder / "checkpoints" / "round-000002.safetensors"
    again = run_local({**keys, "resume-from": str(earlier)})
    assert events(again, PrivacySpent)[-1].epsilon_most == pytest.approx(
        gaussian_epsilon(1e-5, 0.5, 4 + 2)
    )
    assert (again.folder / "model.safetensors").read_bytes() == model


@pytest.mark.parametrize("selector", ["random", "aoi"])
def test_local_noise_charges_those_who_are_chosen(small: dict[str, Any], selector: str) -> None:
    keys = {"privacy": "local-dp", "dp.noise-multiplier": 4.0, "client-selector": selector}
    result = run_local({**small, **keys})
    turns = [key for event in events(result, Selected) for key in event.chosen]
    most = max(turns.count(key) for key in turns)
    wanted = gaussian_epsilon(1e-5, 2.0, most)  # two updates of a client are two clips apart
    assert events(result, PrivacySpent)[-1].epsilon_most == pytest.approx(wanted)


def test_with_local_noise_a_reply_tells_nothing_else_of_the_data(small: dict[str, Any]) -> None:
    result = run_local({**small, "privacy": "local-dp"})
    assert all("train-loss" not in row for row in result.rounds)
    plain = run_local(small)
    assert any("train-loss" in row for row in plain.rounds)


@pytest.mark.parametrize(
    "more",
    [
        {"client-selector": "cosage"},
        {"client-selector": "power-of-choice"},
        {"client-selector": "oort"},
        {"client-selector": "support-diversity"},
        {"client-selector": "signed-diversity"},
        {"strategy": "ode-balanced"},
        {"strategy": "ode", "ode.noise": 1.0},
        {"strategy": "ode", "ode.coordinate": False},
        {"strategy": "ode", "ode.coordinate": False, "ode.estimator": "exact"},
        {"cohorts": "ifca"},
        {"cohorts": "fl-hc"},
        {"cohorts": "flexcfl"},
        {"cohorts": "similarity", "similarity": "cosine"},
        {"cohorts": "neighbours", "similarity": "centred-overlap"},
        {"cohorts": "neighbours", "similarity": "signed-overlap"},
        {"objective": "scaffold"},
        {"aggregator": "qfedavg"},
    ],
    ids=str,
)
def test_what_would_tell_more_than_a_noisy_model_is_refused(more: dict[str, Any]) -> None:
    read_config(more)
    with pytest.raises(ConfigError, match=r"local-dp.*more than a noisy model \(.+\); allowed are"):
        read_config({**more, "privacy": "local-dp"})


# What a run would release that the noise on the mean does not cover
RELEASING: list[dict[str, Any]] = [
    {"cohorts": "neighbours", "similarity": "centred-overlap"},
    {"cohorts": "similarity", "similarity": "centred-overlap"},
    {"cohorts": "split-test"},
    {"cohorts": "conflict-test"},
    {"cohorts": "auxo"},
    {"cohorts": "cfl"},
    {"cohorts": "clove"},
    {"cohorts": "flexcfl"},
    {"cohorts": "fl-hc"},
    {"objective": "scaffold"},
    {"data-selector": "ode-balanced"},
    {"data-selector": "ode"},
    {"work": "by-loss", "client-selector": "flad"},
]


@pytest.mark.parametrize("more", RELEASING, ids=str)
def test_what_would_release_more_than_noisy_models_is_refused(more: dict[str, Any]) -> None:
    read_config(more)
    axis, name = next(iter(more.items()))
    text = rf"privacy = 'central-dp': {axis} = '{name}' releases more than models with noise \(.+\)"
    plain = next(iter(methods(axis)))
    with pytest.raises(ConfigError, match=rf"{text}; allowed are {plain}"):
        read_config({**more, "privacy": "central-dp"})


def test_every_method_that_releases_something_is_among_them() -> None:
    tried = {next(iter(more.items())) for more in RELEASING}
    assert {(method.axis, method.name) for method in all_methods() if method.releases} == tried


@pytest.mark.parametrize(
    "more",
    [{"cohorts": "ifca"}, {"objective": "prox"}, {"data-selector": "trusted"}, {"uplink": "top-k"}],
    ids=str,
)
def test_what_releases_nothing_but_models_is_allowed(more: dict[str, Any]) -> None:
    assert read_config({**more, "privacy": "central-dp"}).privacy == "central-dp"


@pytest.mark.parametrize(
    "aggregator", [name for name, m in methods("aggregator").items() if not m.offers]
)
def test_central_noise_needs_a_mean(aggregator: str) -> None:
    read_config({"aggregator": aggregator, "fraction-train": 1.0})
    with pytest.raises(ConfigError, match=r"central-dp.*use aggregator = fedavg, "):
        read_config({"aggregator": aggregator, "fraction-train": 1.0, "privacy": "central-dp"})
