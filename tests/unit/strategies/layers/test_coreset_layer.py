import math
from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    assert_same,
    honest_records,
    inside,
    listening_to,
    one_round,
    small_model,
)
from flwr.app import ArrayRecord, ConfigRecord, Message
from forager.core.config import ConfigError, read_config
from forager.core.config.combinations import unused_keys
from forager.core.learning.trainer import read_arrays
from forager.core.log.events import CoresetsUsed, Quarantined, Selected
from forager.core.storage import tree
from forager.core.tasks import load_task
from forager.core.tasks.errors import TaskError
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import CORESET, TARGETS
from forager.strategies.build import build_strategy
from forager.strategies.federation.grids import GridView
from forager.strategies.layers.base import Layer
from forager.strategies.layers.cohorts import Cohorts
from forager.strategies.layers.coresets import Coresets
from forager.strategies.server_samples import validation_data
from torch import nn

KEYS = [str(i) for i in range(5)]
MODEL = small_model()
MEANS = to_record({"means": np.ones((3, 4), np.float32)})


def client(**more: Any) -> Any:
    """Return a client that chooses when it is sent targets, and tells; changed by ``more``."""
    chosen = 0

    def behave(message: Message, key: str, look: int = 0) -> list[Message]:
        nonlocal chosen
        number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        chosen = number if TARGETS in message.content else chosen
        told = {"round": chosen, "size": 10 * (1 + int(key)), "seconds": 0.5, "clean": 0.5}
        record = ConfigRecord({k: v for k, v in {**told, **more}.items() if v is not None})
        return [answer(message, {**honest_records(message, key), CORESET: record})]

    return behave


def grid(**spoilt: Any) -> FakeGrid:
    return FakeGrid(KEYS, {key: client() for key in KEYS} | spoilt, wire=True)


def stack(count: int = 5, **settings: Any) -> tuple[Layer, Coresets, Notes]:
    keys: dict[str, Any] = {
        "strategy": "trusted",
        "num-clients": 5,
        "clients-per-round": count,
        "coreset.every": 3,
    }
    strategy = build_strategy(read_config({**keys, **settings}))
    layer = inside(strategy, Coresets)
    layer.targets = lambda arrays: MEANS
    return strategy, layer, listening_to(strategy)


def guided(network: FakeGrid) -> list[str]:
    """Return who was sent targets since the last look."""
    sent = network.of_kind("train")
    network.sent.clear()
    return [network.nodes[m.metadata.dst_node_id] for m in sent if TARGETS in m.content]


def test_targets_are_sent_every_k_rounds_after_the_first() -> None:
    strategy, _, notes = stack()
    network = grid()
    sent = []
    for number in range(1, 9):
        one_round(strategy, to_record(MODEL), network, number)
        sent.append(guided(network))
    assert sent == [[], KEYS, [], [], KEYS, [], [], KEYS]
    assert [e.chose for e in notes.of(CoresetsUsed)] == [0, 5, 0, 0, 5, 0, 0, 5]
    assert [e.without for e in notes.of(CoresetsUsed)] == [5, 0, 0, 0, 0, 0, 0, 0]


def test_who_missed_the_choosing_round_is_sent_them_later() -> None:
    strategy, _, notes = stack(count=2, **{"client-selector": "round-robin", "coreset.every": 4})
    network = grid()
    last: dict[str, int] = {}
    for number in range(1, 10):
        one_round(strategy, to_record(MODEL), network, number)
        chosen = notes.of(Selected)[-1].chosen
        due = [key for key in chosen if number > 1 and number - last.get(key, -99) >= 4]
        assert sorted(guided(network)) == sorted(due)
        last |= dict.fromkeys(due, number)
    assert sorted(last) == KEYS
    assert sum(e.chose for e in notes.of(CoresetsUsed)) > len(KEYS)


def test_a_client_whose_coreset_is_gone_is_sent_them_at_once() -> None:
    strategy, _, _ = stack(**{"coreset.every": 100})
    network = grid(**{"2": client(round=0)})
    sent = []
    for number in range(1, 5):
        one_round(strategy, to_record(MODEL), network, number)
        sent.append(guided(network))
    assert sent == [[], KEYS, ["2"], ["2"]]


def test_targets_are_computed_only_when_somebody_needs_them() -> None:
    strategy, layer, notes = stack()
    calls: list[ArrayRecord] = []

    def targets(arrays: ArrayRecord) -> ArrayRecord:
        calls.append(arrays)
        return MEANS

    layer.targets = targets
    network = grid()
    for number in range(1, 5):
        one_round(strategy, to_record(MODEL), network, number)
    assert len(calls) == 1
    assert [e.guidance_bytes for e in notes.of(CoresetsUsed)] == [0, 5 * 3 * 4 * 4, 0, 0]


def test_the_journal_tells_sizes_clean_share_and_seconds() -> None:
    strategy, _, notes = stack()
    one_round(strategy, to_record(MODEL), grid(**{"4": client(clean=None)}))
    (event,) = notes.of(CoresetsUsed)
    assert event.sizes == [10, 20, 30, 40, 50]
    assert (event.clean_share, event.seconds) == (0.5, 2.5)
    unknown = {key: client(clean=None) for key in KEYS}
    one_round(strategy, to_record(MODEL), grid(**unknown), 2)
    assert notes.of(CoresetsUsed)[1].clean_share is None


def test_the_log_says_what_coresets_are_made_of() -> None:
    strategy, _, notes = stack()
    told = {"0": client(labels=[4, 6]), "1": client(labels=[0, 0, 20]), "2": client(round=0)}
    clients = grid(**told)
    one_round(strategy, to_record(MODEL), clients, 2)
    one_round(strategy, to_record(MODEL), clients, 3)
    first, second = notes.of(CoresetsUsed)
    assert first.samples == {"new": 120, "kept": 0, "random": 30}
    assert second.samples == {"new": 0, "kept": 120, "random": 30}
    assert first.labels == second.labels == [4, 6, 20]  # kept for those that do not tell


@pytest.mark.parametrize(
    "lie",
    [
        {"round": 7},
        {"round": -1},
        {"round": 1.0},
        {"size": 0},
        {"size": None},
        {"seconds": float("nan")},
        {"seconds": -1.0},
        {"clean": 1.5},
        {"clean": "yes"},
        {"labels": [-1, 11]},
        {"labels": [1] * 11},
        {"labels": [1.0, 9.0]},
        {"labels": "many"},
    ],
)
def test_a_reply_that_tells_nonsense_is_set_aside(lie: dict[str, Any]) -> None:
    strategy, layer, notes = stack()
    arrays, _ = one_round(strategy, to_record(MODEL), grid(**{"3": client(**lie)}))
    assert [e.client for e in notes.of(Quarantined)] == ["3"]
    assert "3" not in layer.own_state()["chosen"]
    others, _ = one_round(stack()[0], to_record(MODEL), grid(**{"3": lambda *_: []}))
    assert_same(arrays, others)


def test_state_survives_a_save() -> None:
    strategy, _, _ = stack()
    one_round(strategy, to_record(MODEL), grid(), 2)
    data = tree.to_bytes(strategy.state_dict(), "test")
    fresh, layer, _ = stack()
    fresh.load_state_dict(tree.from_bytes(data, "test"))
    assert layer.own_state() == {"chosen": dict.fromkeys(KEYS, 2), "labels": {}}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"coreset.budget": 2.5}, "coreset.budget = 2.5: above 1 it is a whole number"),
        ({"coreset.budget": 0.0}, "coreset.budget = 0.0"),
        ({"data.validation-share": 0.0}, "data-selector = 'trusted': needs samples on the server"),
        (
            {"data-selector": "trusted", "data.validation-share": 0.0},
            "data-selector = 'trusted': needs samples on the server",
        ),
        (
            {"fine-tune.epochs": 1, "data-selector": "full", "data.validation-share": 0.0},
            "fine-tune.epochs = 1: needs samples",
        ),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_config({"strategy": "trusted", **settings})
    read_config({"data-selector": "gradmatch", "data.validation-share": 0.0})


@pytest.mark.parametrize(
    ("selector", "key", "value"),
    [
        ("crust", "coreset.residual", "total"),
        ("full", "coreset.target", "own"),
        ("trusted", "coreset.per-class", False),
    ],
)
def test_settings_that_a_rule_does_not_look_at_are_named(
    selector: str, key: str, value: Any
) -> None:
    given = {"strategy": "trusted", "data-selector": selector, key: value}
    assert unused_keys(read_config(given), given) == [key]
    read_by_the_paper = {"strategy": "gcfl", key: value}
    assert unused_keys(read_config(read_by_the_paper), read_by_the_paper) == []


def no_head(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    inputs = math.prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, num_classes), nn.ReLU())


@pytest.mark.parametrize(
    "method",
    [
        {"strategy": "trusted"},
        {"strategy": "gcfl"},
        {"data-selector": "crust"},
        {"strategy": "moon"},
    ],
)
def test_a_model_without_a_linear_head_is_refused(method: dict[str, Any]) -> None:
    config = read_config({**method, "model": f"{__name__}:no_head"})
    with pytest.raises(TaskError, match=r"(model = '.*:no_head'|projection).*last layer is ReLU"):
        build_strategy(config)
    build_strategy(read_config({"data-selector": "random", "model": config.model}))


def test_gcfl_is_refused_on_regression_by_its_name() -> None:
    with pytest.raises(TaskError, match=r"data-selector = 'gcfl': works class by class.*diabetes"):
        build_strategy(read_config({"strategy": "gcfl", "task": "diabetes"}))


def sent_means(**settings: Any) -> Any:
    """Return what a server sends at its initial model."""
    config = read_config({"strategy": "trusted", "num-clients": 5, **settings})
    layer = inside(build_strategy(config), Coresets)
    assert layer.targets is not None
    arrays = to_record(read_arrays(load_task(config.task_spec()).build_model()))
    return from_record(layer.targets(arrays))["means"]


@pytest.mark.parametrize("per_class", [True, False])
def test_noise_hides_the_servers_gradients(per_class: bool) -> None:
    form = {"strategy": "gcfl", "coreset.per-class": per_class}
    plain = sent_means(**form)
    bare = sent_means(**form, **{"coreset.noise-multiplier": 1e-9, "coreset.clip": 1e9})
    assert np.abs(bare - plain).max() > 0.001  # 1e-9 * 1e9 = 1, over the samples of a class
    exact = sent_means(**form, **{"coreset.noise-multiplier": 1e-12, "coreset.clip": 1e6})
    np.testing.assert_allclose(exact, plain, atol=1e-5)
    clipped = sent_means(**form, **{"coreset.noise-multiplier": 1e-9, "coreset.clip": 0.01})
    rows = clipped if per_class else clipped.reshape(1, -1)
    assert np.linalg.norm(rows, axis=1).max() < 0.0101


def test_the_noise_on_gradients_does_not_follow_from_the_seed() -> None:
    once, again = (sent_means(**{"coreset.noise-multiplier": 1.0}) for _ in range(2))
    assert once.shape == again.shape
    assert not np.allclose(once, again)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("coreset.residual", "median"),
        ("coreset.class-budgets", "half"),
        ("coreset.noise-multiplier", -1.0),
        ("coreset.clip", 0.0),
    ],
)
def test_values_that_are_not_allowed_are_named(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        read_config({"strategy": "trusted", key: value})
    assert key in str(error.value)
    assert str(value) in str(error.value)


def test_each_cohort_matches_gradients_at_its_own_model() -> None:
    """Recomputed in numpy: of class c, the mean of (p_c - 1) [1, x] over the server's samples."""
    keys = {"strategy": "gcfl", "cohorts": "ifca", "cohort.number": 2, "model": "softmax"}
    config = read_config({**keys, "num-clients": 5, "clients-per-round": 4})
    task = load_task(config.task_spec())
    start = to_record(read_arrays(task.build_model()))
    network, strategy = grid(), build_strategy(config)
    cohorts = inside(strategy, Cohorts)
    cohorts._start(start)
    sent = {}
    for node, (name, model) in enumerate(cohorts.leaf_models.items(), start=500):
        nodes = GridView(network, [node])
        inner = cohorts.cohorts.strategies[name]
        inner.limit(1)
        (message,) = inner.configure_train(1, model, ConfigRecord(), nodes)
        sent[name] = from_record(message.content.array_records[TARGETS])["means"]
    assert len(sent) == 2
    data = validation_data(config, "test")
    x, labels = data.x.numpy().reshape(len(data), -1).astype(np.float64), data.y.numpy()
    for name, model in cohorts.leaf_models.items():
        weight, bias = from_record(model).values()
        scores = np.exp(x @ weight.T + bias)
        p = scores / scores.sum(1, keepdims=True)
        for c in range(10):
            own = labels == c
            rows = (p[own, c] - 1)[:, None] * np.hstack([np.ones((own.sum(), 1)), x[own]])
            np.testing.assert_allclose(sent[name][c], rows.mean(0), rtol=1e-3, atol=1e-5)
    assert not np.allclose(*sent.values())
