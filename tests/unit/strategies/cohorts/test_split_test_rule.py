"""The split test in the layer: who is asked, who sits out, and what is said about it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    answer,
    honest,
    honest_records,
    listening_to,
    rounds,
    row_of,
    small_model,
)
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from forager.core.config import ConfigError, read_config
from forager.core.storage import tree
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, LOSSES, METRICS
from forager.core.wire.replies import Replies, Row
from forager.strategies.build import single_model_stack
from forager.strategies.cohorts.base import MEAN, CohortSignals, Scene, asked_losses
from forager.strategies.cohorts.split_testing import ConflictTestRule, SplitTestRule
from forager.strategies.cohorts.update_sketches import Signal
from forager.strategies.federation import waiting_replies
from forager.strategies.federation.federation import BadReply, Federation
from forager.strategies.federation.waiting_replies import IN_MEMORY
from forager.strategies.layers.base import Layer
from forager.strategies.layers.cohorts import Cohorts

KEYS = [str(i) for i in range(12)]
START = to_record(small_model())


def rule_of(
    kind: type[SplitTestRule] = SplitTestRule, **settings: int | float | str
) -> SplitTestRule:
    """A rule that splits as soon as it sees groups."""
    chosen = {"min-participants": 1} | settings
    keys = {f"split-test.{k.replace('_', '-')}": v for k, v in chosen.items() if k != "privacy"}
    more = {"privacy": settings["privacy"]} if "privacy" in settings else {}
    given = {**keys, **more, "cohorts": "split-test", "num-clients": 12}
    rule = kind(read_config(given))
    rule.core.rule = replace(rule.core.rule, rounds=1)
    return rule


def two_ways(keys: Sequence[str], seed: int = 0) -> CohortSignals:
    """Even clients pull one way, odd ones another."""
    ways = np.eye(8)[[int(key) % 2 for key in keys]]
    noise = 0.1 * np.random.default_rng(seed).normal(size=ways.shape)
    return CohortSignals(list(keys), (ways + noise).astype(np.float32))


def split_rule(**settings: int | float | str) -> SplitTestRule:
    """A rule after the first ten clients were sorted into two cohorts in round 1."""
    rule = rule_of(**settings)
    regrouping = rule.learn(1, {"0": 1}, {"0": two_ways(KEYS[:10])})
    assert regrouping == {"0.0": {"0": 1.0}, "0.1": {"0": 1.0}}
    return rule


def places(rule: SplitTestRule, scene: Scene) -> dict[str, str]:
    return dict(zip(scene.keys, rule.place(scene), strict=True))


class Asked:
    """Clients that are asked for losses; even ones fit the first cohort, odd ones the second."""

    def __init__(self, silent: Sequence[str] = ()) -> None:
        self.keys: list[list[str]] = []
        self.silent = silent

    def scene(self, number: int, cohorts: Sequence[str] = ("0.1", "0.0")) -> Scene:
        models = dict.fromkeys(cohorts, START)
        return Scene(number, KEYS, models, dict.fromkeys(cohorts, number), True, self.ask)

    def ask(
        self,
        keys: Sequence[str],
        kind: str,
        models: Mapping[str, ArrayRecord],
        settings: Mapping[str, int | str],
        read: Callable[[str, Row], Any],
    ) -> dict[str, Any]:
        self.keys.append(list(keys))
        question = Message(RecordDict(dict(models)), dst_node_id=1, message_type=kind)
        told = {}
        for key in keys:
            names = sorted(models)
            losses = [0.1 if name == f"0.{int(key) % 2}" else 0.9 for name in names]
            metrics = MetricRecord({LOSSES: losses})
            if key not in self.silent:
                told[key] = read(key, row_of(answer(question, {METRICS: metrics})))
        return told


def test_clients_that_no_cohort_knows_are_asked_once_and_start_where_they_fit() -> None:
    rule, asked = split_rule(), Asked()
    rule.regroup(asked.scene(2))
    assert asked.keys == []  # the models are still much the same
    assert places(rule, asked.scene(2))["10"] == ""  # so these sit out
    rule.regroup(asked.scene(3))
    rule.regroup(asked.scene(4))
    assert asked.keys == [["10", "11"]]
    found = places(rule, asked.scene(4))
    assert {key: found[key] for key in KEYS} == {key: f"0.{int(key) % 2}" for key in KEYS}


def test_only_groups_have_heterogeneity_in_the_report() -> None:
    rule = rule_of()
    rule.learn(1, {"0": 1}, {"0": two_ways(KEYS[:1])})  # too few to look at
    assert rule.report()["heterogeneity"] == {}
    rule.learn(2, {"0": 2}, {"0": two_ways(KEYS[:10])})
    assert "0" in rule.report()["heterogeneity"]


def test_clients_that_may_not_be_asked_try_every_cohort_and_stay_with_the_best() -> None:
    rule, asked = split_rule(privacy="local-dp"), Asked()
    for number in range(2, 6):
        rule.regroup(asked.scene(number))
        found = places(rule, asked.scene(number))
        if number < 4:
            assert {found["10"], found["11"]} <= {"0.0", "0.1"}
        seen = {
            leaf: two_ways([key for key in KEYS if found[key] == leaf], seed=number)
            for leaf in ("0.0", "0.1")
        }
        rule.learn(number, {"0.0": number, "0.1": number}, seen)
    assert asked.keys == []
    found = places(rule, asked.scene(6))
    assert (found["10"], found["11"]) == ("0.0", "0.1")


def test_who_did_not_answer_is_asked_again_later_and_meanwhile_tries() -> None:
    rule, asked = split_rule(), Asked(silent=["11"])
    for number in range(3, 8):
        rule.regroup(asked.scene(number))
    assert asked.keys == [["10", "11"], ["11"]]  # rounds 3 and 5; then 9
    assert places(rule, asked.scene(8))["11"] in ("0.0", "0.1")


def test_losses_that_are_almost_equal_do_not_decide_at_once() -> None:
    rule = split_rule()
    for round_, number in enumerate((3, 5, 9, 17)):
        rule.core.told(["11"], {"11": [0.500, 0.499]}, number)
        assert rule.core.home("11") is None, round_
    rule.core.told(["11"], {"11": [0.500, 0.499]}, 33)
    assert rule.core.home("11") == "0.1"


def test_a_client_that_does_not_fit_is_asked_and_moves_only_if_another_model_is_better() -> None:
    rule = split_rule()
    for number in range(2, 8):
        seen = {"0.0": two_ways(KEYS[:10:2], number), "0.1": two_ways(KEYS[1:10:2], number)}
        seen["0.0"].signals[0] = [-1, 0, 0, 0, 0, 0, 0, 1]  # client 0 changed
        rule.learn(number, {"0.0": number, "0.1": number}, seen)
    assert rule.core.to_ask(KEYS[:10], 8, most=20) == ["0"]
    rule.core.told(["0"], {"0": [0.50, 0.49]}, 8)
    assert rule.core.home("0") == "0.0"
    rule.core.told(["0"], {"0": [0.50, 0.10]}, 9)
    assert rule.core.home("0") == "0.1"


def test_a_restart_remembers_who_is_where_and_when_the_last_split_was() -> None:
    rule, fresh, asked = split_rule(), rule_of(), Asked()
    fresh.load_state_dict(tree.from_bytes(tree.to_bytes(rule.state_dict(), "test"), "test"))
    fresh.regroup(asked.scene(2))
    assert places(fresh, asked.scene(2)) == places(rule, asked.scene(2))
    fresh.regroup(asked.scene(3))
    assert asked.keys == [["10", "11"]]


def test_a_run_without_groups_says_why_nothing_was_split(caplog: pytest.LogCaptureFixture) -> None:
    keys = [str(number) for number in range(30)]
    rule = SplitTestRule(
        read_config({"cohorts": "split-test", "num-clients": 30, "num-server-rounds": 4})
    )
    rng = np.random.default_rng(0)
    always = rng.normal(size=(30, 8))
    with caplog.at_level(logging.INFO, logger="forager"):
        for number in range(1, 5):
            signals = 3 + always + 0.1 * rng.normal(size=always.shape)
            seen = {"0": CohortSignals(keys, signals.astype(np.float32))}
            assert rule.learn(number, {"0": number}, seen) is None
            assert "of the variance is within" in rule.report()["reasons"]["0"]
    (line,) = [r.message for r in caplog.records if "did not split" in r.message]
    assert "at most 15% is allowed" in line


@pytest.mark.parametrize(("clients", "least"), [(5, 1), (10, 1), (30, 3), (200, 20)])
def test_defaults_scale_with_the_participants(clients: int, least: int) -> None:
    config = read_config(
        {"cohorts": "split-test", "num-clients": 400, "clients-per-round": clients}
    )
    rule = SplitTestRule(config).core.rule
    assert (rule.participants, rule.first_round, rule.rounds) == (least, 1, 2)


@pytest.mark.parametrize("by_labels", [True, False])
def test_a_difference_of_labels_alone_splits_only_where_it_may(by_labels: bool) -> None:
    rule = rule_of(SplitTestRule if by_labels else ConflictTestRule)
    model = from_record(START)
    last = list(model)[-1]
    shifts = np.eye(model[last].size)[[int(key) % 2 for key in KEYS]]
    stacks = {name: np.repeat(array[None], len(KEYS), axis=0) for name, array in model.items()}
    stacks[last] = stacks[last] + shifts.astype(np.float32)
    replies = Replies(range(12), [""] * 12, [""] * 12, {}, {ARRAYS: stacks})
    assert rule.hear(KEYS, replies, [START] * len(KEYS), ()) == {}
    seen = {"0": two_ways(KEYS)}
    assert bool(rule.learn(1, {"0": 1}, seen)) == by_labels
    if not by_labels:
        assert "labels alone tell 2 parts apart" in rule.report()["reasons"]["0"]
        again = rule_of(ConflictTestRule)
        again.load_state_dict(rule.state_dict())
        assert again.learn(2, {"0": 2}, seen) is None


def test_groups_that_labels_do_not_tell_apart_are_split() -> None:
    rule = rule_of(ConflictTestRule)
    rule.core.hear_labels(KEYS, np.eye(3)[np.arange(12) // 2 % 3].tolist())
    assert rule.learn(1, {"0": 1}, {"0": two_ways(KEYS)})


def test_who_is_not_known_evaluates_the_mean_of_all_models() -> None:
    rule = split_rule()
    config, federation = read_config({"fraction-evaluate": 1.0}), Federation()

    def make() -> Layer:
        return single_model_stack(config, federation)

    layer = Cohorts(make, rule, Signal(8))
    listening_to(layer)
    layer._start(START)
    layer._regroup(1, {"0.0": {"0": 1.0}, "0.1": {"0": 1.0}})
    first = from_record(START)
    layer.leaf_models["0.1"] = to_record({n: a + 2 for n, a in first.items()})
    grid = FakeGrid(KEYS, dict.fromkeys(KEYS, honest))
    scene = Asked().scene(2)
    told = layer.configure_evaluate(2, START, ConfigRecord(), grid)
    models = {
        federation.key(m.metadata.dst_node_id): from_record(m.content.array_records[ARRAYS])
        for m in told
    }
    assert set(models) == set(KEYS)
    assert rule.core.place(scene.keys)[10:] == [MEAN, MEAN]
    name = next(iter(first))
    np.testing.assert_allclose(models["0"][name], first[name], rtol=1e-5)
    np.testing.assert_allclose(models["1"][name], first[name] + 2, rtol=1e-5)
    np.testing.assert_allclose(models["10"][name], first[name] + 1, rtol=1e-5)
    np.testing.assert_equal(models["10"], models["11"])


def pulling(message: Message, key: str, look: int) -> list[Message]:
    """Even clients add one to every weight, odd ones subtract it; all but the bias."""
    if message.metadata.message_type != "train":
        return honest(message, key)
    records = honest_records(message, key)
    before = from_record(message.content.array_records[ARRAYS])
    step = {name: 1.0 if int(key) % 2 else -1.0 for name in before if "weight" in name}
    records[ARRAYS] = to_record(
        {n: (a + step.get(n, 0)).astype(a.dtype) for n, a in before.items()}
    )
    return [answer(message, records)]


@pytest.mark.parametrize("most", [0, IN_MEMORY], ids=["on disk", "in memory"])
@pytest.mark.parametrize("own_start", [True, False])
def test_parts_start_from_what_their_members_trained_where_that_is_allowed(
    own_start: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_replies, "IN_MEMORY", most)
    config, federation = read_config({}), Federation()

    def make() -> Layer:
        return single_model_stack(config, federation)

    layer = Cohorts(make, rule_of(), Signal(8), own_start=own_start)
    listening_to(layer)
    rounds(layer, START, FakeGrid(KEYS, dict.fromkeys(KEYS, pulling)), range(1, 2))
    assert list(layer.leaf_models) == ["0.0", "0.1"]
    first = from_record(START)["layer.weight"]
    moved = {
        leaf: from_record(model)["layer.weight"] - first
        for leaf, model in layer.leaf_models.items()
    }
    even, odd = layer.members["0"], layer.members["1"]
    if own_start:
        np.testing.assert_allclose(moved[even], -1.0, atol=1e-5)
        np.testing.assert_allclose(moved[odd], 1.0, atol=1e-5)
    else:
        np.testing.assert_array_equal(moved[even], moved[odd])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, True),
        ({"aggregator": "median"}, False),
        ({"uplink": "top-k"}, False),
        ({"privacy": "local-dp"}, False),
        ({"cohorts": "cfl"}, False),
    ],
)
def test_only_where_models_are_averaged_anyway(keys: dict[str, Any], expected: bool) -> None:
    config = read_config({"cohorts": "split-test", **keys})
    layer = Cohorts.of_run(lambda: single_model_stack(config, Federation()), config)
    assert layer.own_start == expected


@pytest.mark.parametrize("key", ["split-test.parts", "auxo.min-participants"])
def test_no_part_at_all_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} = 0: must be at least 1"):
        read_config({key: 0})


def test_losses_belong_to_the_cohorts_they_were_told_of() -> None:
    """Clients tell them in the order of the names, in which 0.10 comes before 0.2."""
    cohorts = [f"0.{number}" for number in range(12)]

    def ask(keys: Any, kind: str, models: Any, settings: Any, read: Any) -> dict[str, Any]:
        question = Message(RecordDict(dict(models)), dst_node_id=1, message_type=kind)
        losses = [float(name.partition(".")[2]) for name in sorted(models)]
        right = answer(question, {METRICS: MetricRecord({LOSSES: losses})})
        short = answer(question, {METRICS: MetricRecord({LOSSES: losses[:3]})})
        number = answer(question, {METRICS: MetricRecord({LOSSES: 0.5})})
        for bad in (short, number, answer(question, {})):
            with pytest.raises(BadReply, match="losses of models: losses"):
                read("bad", row_of(bad))
        return {"right": read("right", row_of(right))}

    scene = Scene(1, [], dict.fromkeys(cohorts, START), {}, True, ask)
    told = asked_losses(scene, ["right", "bad"])
    assert told == {"right": {f"0.{number}": float(number) for number in range(12)}}
