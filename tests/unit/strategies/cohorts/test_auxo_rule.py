"""Auxo's rule in the layer: what goes over the wire, and what clients cannot break."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

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
    never,
    one_round,
    rounds,
    row_of,
    small_model,
)
from flwr.app import ConfigRecord, Message, RecordDict
from forager.core.config import read_config
from forager.core.log.events import CohortFailed, CohortsTrained, Quarantined
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import AFFINITY, ARRAYS, ASK_AFFINITY
from forager.selectors.cohorts.affinity import Affinity, Feedback
from forager.selectors.cohorts.auxo import Auxo
from forager.selectors.cohorts.split import SplitRule
from forager.selectors.cohorts.tree import CohortTree
from forager.strategies.build import single_model_stack
from forager.strategies.cohorts.auxo import AuxoRule
from forager.strategies.cohorts.base import CohortSignals, Scene
from forager.strategies.cohorts.update_sketches import Signal
from forager.strategies.federation.federation import Federation
from forager.strategies.layers.base import Layer
from forager.strategies.layers.cohorts import Cohorts

PLACE = "forager.strategies.cohorts.auxo"
KEYS = [str(i) for i in range(12)]
START = to_record(small_model())
EAGER = {
    "first-clustering": 0,
    "first-split": 0,
    "alpha": 0.0,
    "min-participants": 4,  # so that of ten, split once, no part is split again
}


def rule_of(**settings: int | float) -> AuxoRule:
    """A rule that splits as soon as it sees groups, and whose clients do not explore."""
    chosen = EAGER | {"parts": 2} | settings
    config = read_config({f"auxo.{k.replace('_', '-')}": v for k, v in chosen.items()})
    with (
        patch(f"{PLACE}.SplitRule", partial(SplitRule, rounds=1)),
        patch(f"{PLACE}.Auxo", partial(Auxo, exploration=0.0)),
    ):
        return AuxoRule(config)


def two_ways(keys: Sequence[str]) -> CohortSignals:
    """Even clients pull one way, odd ones another."""
    ways = np.array([[1.0, 0.1, 0.0], [0.1, 1.0, 0.0]])[[int(key) % 2 for key in keys]]
    noise = 0.05 * np.random.default_rng(0).normal(size=ways.shape)
    return CohortSignals(list(keys), (ways + noise).astype(np.float32))


def split_rule(**settings: int | float) -> AuxoRule:
    """A rule after the first ten clients were sorted into two cohorts in round 1."""
    rule = rule_of(**settings)
    regrouping = rule.learn(1, {"0": 1}, {"0": two_ways(KEYS[:10])})
    assert regrouping == {"0.0": {"0": 1.0}, "0.1": {"0": 1.0}}
    return rule


def scene_of(number: int, ask: Any, cohorts: Sequence[str] = ("0.0", "0.1")) -> Scene:
    models = dict.fromkeys(cohorts, START)
    return Scene(number, KEYS, models, dict.fromkeys(cohorts, number), True, ask)


def asked(keys: Sequence[str], kind: str, records: Any, settings: Any, read: Any) -> dict[str, Any]:
    """Ask clients that learn from what they are sent."""
    assert kind == ASK_AFFINITY
    found = {}
    for key in keys:
        news, mine = dict(records(key)[AFFINITY]), Affinity()
        names = ("cohort", "reward", "index", "serial")
        feedback = Feedback(*(news[name] for name in names)) if "serial" in news else None
        mine.learn(feedback, CohortTree.of_leaves(news["leaves"]))
        message = Message(RecordDict({}), dst_node_id=1, message_type="query.affinity")
        reply = answer(message, {AFFINITY: ConfigRecord(mine.state_dict())})
        found[key] = read(key, row_of(reply))
    return found


def nobody_is_asked(*_: Any) -> dict[str, Any]:
    raise AssertionError("a question")


def test_clients_say_what_they_know_before_they_are_matched() -> None:
    rule = split_rule()
    places = dict(zip(KEYS, rule.place(scene_of(2, asked)), strict=True))
    assert len({places[key] for key in KEYS[:10:2]}) == 1
    assert len({places[key] for key in KEYS[1:10:2]}) == 1
    assert [rule.core.feedback_for(key) for key in KEYS] == [None] * 12
    lost = [rule.place(scene_of(3, asked)) for _ in range(4)]  # all that they ever knew
    assert any(other != lost[0] for other in lost)


def test_nobody_is_asked_while_there_is_one_cohort() -> None:
    assert rule_of().place(scene_of(1, nobody_is_asked, ["0"])) == ["0"] * 12


def layer_of(rule: AuxoRule, **settings: Any) -> tuple[Cohorts, Notes]:
    config, federation = read_config({}), Federation()

    def make() -> Layer:
        return single_model_stack(config, federation)

    layer = Cohorts(make, rule, Signal(8), **settings)
    return layer, listening_to(layer)


def pulling(message: Message, key: str, look: int) -> list[Message]:
    """Train in the direction of one's side."""
    if message.metadata.message_type != "train":
        return honest(message, key)
    records = honest_records(message, key)
    before = from_record(message.content.array_records[ARRAYS])
    step = {"layer.weight": 0.1, "layer.bias": 0.0 if int(key) % 2 else -0.4}
    after = {
        n: a + np.asarray(step.get(n, 0) * (1 + 0.01 * int(key)), a.dtype)
        for n, a in before.items()
    }
    after["layer.weight"] *= -1.0 if int(key) % 2 else 1.0
    records[ARRAYS] = to_record(after)
    return [answer(message, records)]


def test_a_cohort_that_fails_is_not_looked_at_either() -> None:
    """Its round is repeated: nobody is rewarded for it, and the others' rounds count."""

    def broken(message: Message, key: str, look: int) -> list[Message]:
        if message.metadata.message_type != "train":
            return honest(message, key)
        records = honest_records(message, key)
        arrays = from_record(records[ARRAYS])
        records[ARRAYS] = to_record({n: np.full_like(a, np.inf) for n, a in arrays.items()})
        return [answer(message, records)]

    rule = rule_of(min_participants=5)
    layer, notes = layer_of(rule)
    behaviours = dict.fromkeys(KEYS, pulling)
    arrays = rounds(layer, START, FakeGrid(KEYS, behaviours), range(1, 2))
    assert list(layer.leaf_models) == ["0.0", "0.1"]
    sides = rule.core.members(KEYS)
    odd = next(leaf for leaf, keys in sides.items() if "1" in keys)
    even = next(leaf for leaf, keys in sides.items() if "0" in keys)
    before = {leaf: rule.core.round_of(leaf) for leaf in (odd, even)}
    grid = FakeGrid(KEYS, behaviours | dict.fromkeys(sides[odd], broken))
    result, _ = one_round(layer, arrays, grid, 2)
    assert result is not None
    assert [event.cohort for event in notes.of(CohortFailed)] == [odd]
    assert rule.core.round_of(odd) == before[odd]
    assert rule.core.round_of(even) == before[even] + 1
    assert layer.cohorts.rounds == {odd: 1, even: 2}


def test_a_checkpoint_whose_models_are_of_another_tree_is_refused() -> None:
    layer, _ = layer_of(rule_of())
    rounds(layer, START, FakeGrid(KEYS, dict.fromkeys(KEYS, pulling)), range(1, 2))
    state = layer.state_dict()
    fresh, _ = layer_of(rule_of())
    only_one = {**state, "cohorts": [{**state["cohorts"][0], "name": "0"}]}
    with pytest.raises(ValueError, match=r"models of \['0'\].*tree has \['0.0', '0.1'\]"):
        fresh.load_state_dict(only_one)
    assert fresh.leaf_models == {}
    fresh.load_state_dict(state)
    assert list(fresh.leaf_models) == ["0.0", "0.1"]


@pytest.mark.parametrize("when", ["asked", "training"])
def test_who_is_on_the_blacklist_is_not_asked_and_that_is_reported(when: str) -> None:
    """What places a client is its word, whatever it says of itself afterwards."""
    rule = split_rule(lies_allowed=1)
    side = rule.core.members(KEYS)["0.0"]
    liar = side[0]
    lie = {"cohorts": ["0.0"], "rewards": [0.9], "indices": [-1], "known": [True], "serial": 1}
    message = Message(RecordDict({}), dst_node_id=1, message_type="train")
    reply = answer(message, {AFFINITY: ConfigRecord(lie)})
    if when == "asked":

        def lying(keys: Sequence[str], kind: str, records: Any, settings: Any, read: Any) -> Any:
            honest = asked(keys, kind, records, settings, read)
            return honest | {liar: read(liar, row_of(reply))}

        rule.place(scene_of(2, lying))
        reply = answer(message, {AFFINITY: ConfigRecord(lie | {"rewards": [-0.9]})})
    rule.hear_one(liar, row_of(reply), START)
    seen = two_ways(side)
    seen.signals[0] = [-9.0, 9.0, 9.0]
    rule.learn(2, {"0.0": 2, "0.1": 2}, {"0.0": seen})
    assert rule.report()["liars"] == rule.report()["barred"] == [liar]
    places = dict(zip(KEYS, rule.place(scene_of(3, asked)), strict=True))
    assert places[liar] == ""
    assert all(places[key] for key in KEYS if key != liar)


@pytest.mark.parametrize(
    "records",
    [
        {},
        {"cohorts": ["0"], "rewards": [math.nan], "indices": [0], "known": [True], "serial": 1},
        {"cohorts": ["0", "0.0"], "rewards": [0.1], "indices": [0], "known": [True], "serial": 1},
        {"cohorts": 3, "rewards": [0.1], "indices": [0], "known": [True], "serial": 1},
        {"cohorts": ["0"], "rewards": ["x"], "indices": [0], "known": [True], "serial": 1},
    ],
)
def test_records_that_cannot_be_read_are_refused_and_change_nothing(
    records: dict[str, Any],
) -> None:
    rule = split_rule()
    question = Message(RecordDict({}), dst_node_id=1, message_type="train")
    with pytest.raises(ValueError, match=r"affinity records: |records: columns|rewards: expected"):
        rule.hear_one("0", row_of(answer(question, {AFFINITY: ConfigRecord(records)})), START)
    rule.learn(2, {"0.0": 2, "0.1": 2}, {"0.0": two_ways(KEYS[:10:2])})
    assert sorted(k for keys in rule.core.members(KEYS).values() for k in keys) == sorted(KEYS)


def test_who_sends_records_that_cannot_be_read_is_set_aside_and_its_cohort_goes_on() -> None:
    def garbled(message: Message, key: str, look: int) -> list[Message]:
        records = honest_records(message, key)
        return [answer(message, {**records, AFFINITY: ConfigRecord({"cohorts": 3})})]

    layer, notes = layer_of(rule_of())
    got, _ = one_round(layer, START, FakeGrid(KEYS, {"3": garbled}))
    (event,) = notes.of(Quarantined)
    assert (event.round, event.client) == (1, "3")
    assert "affinity records: " in event.reason
    assert dict(layer.federation.strikes) == {"3": 1}
    silent, _ = layer_of(rule_of())
    wanted, _ = one_round(silent, START, FakeGrid(KEYS, {"3": never}))
    assert_same(got, wanted)
    assert notes.of(CohortsTrained)[0].participants == {"0": 11}


def test_a_request_counts_in_the_round_that_it_came_in() -> None:
    rule, seen = split_rule(), {"0.0": two_ways(["0", "2"])}
    told = {AFFINITY: ConfigRecord(Affinity().state_dict())}
    rule.hear_one("0", row_of(answer(Message(RecordDict({}), 1, "train"), told)), START)
    with patch.object(rule.core, "observe", wraps=rule.core.observe) as observe:
        for number in (2, 3):
            rule.learn(number, {"0.0": number}, seen)
    requests = [call.args[3] for call in observe.call_args_list]
    assert [[one is not None for one in each] for each in requests] == [[True, False], [False] * 2]
