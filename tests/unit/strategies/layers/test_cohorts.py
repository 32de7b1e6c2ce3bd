import tracemalloc
from collections.abc import Mapping
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
    never,
    one_round,
    rounds,
    small_model,
)
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from forager.core.config import read_config
from forager.core.log.events import (
    CohortFailed,
    CohortsEvaluated,
    CohortsTrained,
    Quarantined,
    Regrouped,
    Selected,
)
from forager.core.storage import tree
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import ARRAYS, CONFIG, ROUND
from forager.core.wire.requests import Requests
from forager.strategies.build import single_model_stack
from forager.strategies.cohorts.base import (
    CohortRule,
    CohortSignals,
    Regrouping,
    Scene,
    split_into,
)
from forager.strategies.cohorts.update_sketches import Signal
from forager.strategies.federation import waiting_replies
from forager.strategies.federation.federation import BadReply, Federation
from forager.strategies.federation.roster import Roster
from forager.strategies.layers.base import Layer
from forager.strategies.layers.cohorts import Cohorts
from forager.strategies.layers.quarantine import QuarantineLayer

KEYS = [str(i) for i in range(8)]
START = to_record(small_model())


class OddAndEven(CohortRule):
    """Splits after the second round: even keys to one side, odd keys to the other."""

    def __init__(self) -> None:
        self.cohorts = ["0"]
        self.seen: list[Mapping[str, CohortSignals]] = []

    def place(self, scene: Scene) -> list[str]:
        if self.cohorts == ["0"]:
            return ["0"] * len(scene.keys)
        return [self.cohorts[int(key) % 2] for key in scene.keys]

    def learn(
        self, server_round: int, rounds: Mapping[str, int], seen: Mapping[str, CohortSignals]
    ) -> Regrouping | None:
        self.seen.append(seen)
        if server_round != 2:
            return None
        self.cohorts = ["0.0", "0.1"]
        return split_into(["0"], {"0": self.cohorts})

    def state_dict(self) -> dict[str, Any]:
        return {"cohorts": self.cohorts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.cohorts = list(state["cohorts"])


def cohorts(aggregator: str = "fedavg", **settings: Any) -> tuple[Cohorts, Notes]:
    config = read_config({"aggregator": aggregator, "fraction-evaluate": 1.0})
    federation = Federation()

    def make() -> Layer:
        return single_model_stack(config, federation)

    layer = Cohorts(make, OddAndEven(), Signal(8), **settings)
    return layer, listening_to(layer)


def keys_of(messages: list[Message], grid: FakeGrid) -> list[str]:
    return [grid.nodes[message.metadata.dst_node_id] for message in messages]


def test_children_start_from_the_parent_then_go_their_own_ways() -> None:
    layer, notes = cohorts(count=6)
    grid = FakeGrid(KEYS)
    parent = rounds(layer, START, grid, range(1, 3))
    assert list(layer.leaf_models) == ["0.0", "0.1"]
    for model in layer.leaf_models.values():
        assert_same(model, parent)
    rounds(layer, parent, grid, range(3, 5))
    even, odd = (from_record(m)["layer.weight"] for m in layer.leaf_models.values())
    assert not np.allclose(even, odd)
    assert layer.cohorts.rounds == {"0.0": 4, "0.1": 4}
    assert [event.members for event in notes.of(CohortsTrained)][-1] == {"0.0": 4, "0.1": 4}
    assert notes.of(Regrouped)[0].round == 2


def test_a_round_holds_a_few_models_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cohorts wait for all replies: 50 of 51 MB took four gigabytes."""
    monkeypatch.setattr(waiting_replies, "IN_MEMORY", 2**21)
    config, keys = read_config({"num-clients": 40}), [str(key) for key in range(40)]
    layer = Cohorts(lambda: single_model_stack(config, Federation()), OddAndEven(), Signal(8))
    listening_to(layer)
    model = {"layer.weight": np.zeros(2**18, dtype=np.float32)}
    asked = list(layer.configure_train(1, to_record(model), ConfigRecord(), grid := FakeGrid(keys)))
    replies = (
        answer(message, honest_records(message, grid.nodes[message.metadata.dst_node_id]))
        for message in asked
    )
    tracemalloc.start()
    arrays, _ = layer.aggregate_train(1, replies)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert arrays is not None
    assert peak < 25 * 2**20


def test_one_of_each_cohort_trains_however_few_are_asked_for() -> None:
    layer, _ = cohorts(count=1)
    grid = FakeGrid(KEYS)
    model = rounds(layer, START, grid, range(1, 3))
    messages = list(layer.configure_train(3, model, ConfigRecord(), grid))
    assert sorted(int(key) % 2 for key in keys_of(messages, grid)) == [0, 1]


def test_participants_are_shared_out_and_each_gets_its_own_model() -> None:
    layer, _ = cohorts(count=6)
    grid = FakeGrid(KEYS)
    arrays = rounds(layer, START, grid, range(1, 5))
    messages = list(layer.configure_train(5, arrays, ConfigRecord(), grid))
    keys = keys_of(messages, grid)
    assert sorted(int(key) % 2 for key in keys) == [0, 0, 0, 1, 1, 1]
    for message, key in zip(messages, keys, strict=True):
        sent = message.content.array_records[ARRAYS]
        assert_same(sent, layer.leaf_models[f"0.{int(key) % 2}"])


def test_who_still_trains_counts_among_the_share_that_is_to_train() -> None:
    layer, _ = cohorts(fraction=0.75)
    grid, asked = FakeGrid(KEYS), []
    for number in (1, 2):
        requests = Requests.of(layer.configure_train(number, START, ConfigRecord(), grid))
        assert requests is not None
        asked.append(len(requests.nodes))
        slow = requests.select([0, 1, 2, 3][: len(requests.nodes)])
        slow.ids = [f"{number}.{node}" for node in slow.nodes]
        layer.federation.ledger.open(slow, number, now=0.0, expires=60.0)
    assert asked == [6, 2]


def test_each_client_evaluates_its_own_cohorts_model() -> None:
    layer, _ = cohorts(count=6)
    grid = FakeGrid(KEYS)
    arrays = rounds(layer, START, grid, range(1, 5))
    messages = list(layer.configure_evaluate(5, arrays, ConfigRecord(), grid))
    assert sorted(keys_of(messages, grid)) == KEYS
    for message, key in zip(messages, keys_of(messages, grid), strict=True):
        sent = message.content.array_records[ARRAYS]
        assert_same(sent, layer.leaf_models[f"0.{int(key) % 2}"])
    shares = {name: share for name, (_, share) in layer.models(arrays).items()}
    assert shares == {"0.0": 0.5, "0.1": 0.5}


def test_who_comes_while_others_train_is_known_by_its_name() -> None:
    layer, notes = cohorts()
    grid = FakeGrid(KEYS[:6])
    arrays = rounds(layer, START, grid, range(1, 4))
    grid.nodes[700] = "7"
    list(layer.configure_evaluate(3, arrays, ConfigRecord(), grid))
    assert layer.members["7"] == "0.1"
    rounds(layer, arrays, grid, range(4, 5))
    assert notes.of(CohortsTrained)[-1].moved == {"7": "0.1"}


def test_who_tells_its_name_late_is_not_counted_twice() -> None:
    layer, notes = cohorts()
    grid = FakeGrid(KEYS, names={"3": lambda message, key, look: []})
    rounds(layer, START, grid, range(1, 4))
    assert Roster.nameless(503) in notes.of(CohortsTrained)[0].moved
    assert set(layer.members) == set(KEYS)
    assert sum(notes.of(CohortsTrained)[-1].members.values()) == len(KEYS)


def test_the_log_says_how_each_cohort_does_on_its_clients_data() -> None:
    layer, notes = cohorts()
    grid = FakeGrid(KEYS)
    arrays = rounds(layer, START, grid, range(1, 5))
    messages = list(layer.configure_evaluate(5, arrays, ConfigRecord(), grid))
    replies = []
    for message in messages:
        odd = int(grid.nodes[message.metadata.dst_node_id]) % 2
        told = MetricRecord({"accuracy": 0.25 + odd / 2, "loss": 1.0, "num-examples": 3})
        replies += [answer(message, {"metrics": told})]
    layer.aggregate_evaluate(5, replies)
    (event,) = notes.of(CohortsEvaluated)
    assert event.round == 5
    assert event.means == {"0.0": 0.25, "0.1": 0.75}


def test_a_failing_cohort_does_not_touch_the_others() -> None:
    def broken(message: Message, key: str, look: int) -> list[Message]:
        if message.metadata.message_type != "train":
            return honest(message, key)
        records = honest_records(message, key)
        arrays = from_record(records[ARRAYS])
        records[ARRAYS] = to_record({n: np.full_like(a, np.nan) for n, a in arrays.items()})
        return [answer(message, records)]

    layer, notes = cohorts()
    arrays = rounds(layer, START, FakeGrid(KEYS), range(1, 4))
    before = dict(layer.leaf_models)
    one_round(layer, arrays, FakeGrid(KEYS, dict.fromkeys(KEYS[1::2], broken)), 4)
    assert_same(layer.leaf_models["0.1"], before["0.1"])
    assert not np.allclose(
        *(from_record(m)["layer.weight"] for m in (layer.leaf_models["0.0"], before["0.0"]))
    )
    assert layer.cohorts.rounds == {"0.0": 4, "0.1": 3}
    assert notes.of(CohortFailed)[0].cohort == "0.1"


def test_a_cohort_whose_members_left_waits() -> None:
    layer, _ = cohorts()
    arrays = rounds(layer, START, FakeGrid(KEYS), range(1, 4))
    arrays = rounds(layer, arrays, FakeGrid(KEYS[::2], first_node=900), range(4, 6))
    assert layer.cohorts.rounds == {"0.0": 5, "0.1": 3}
    rounds(layer, arrays, FakeGrid(KEYS), range(6, 7))
    assert layer.cohorts.rounds == {"0.0": 6, "0.1": 4}


def test_a_round_that_brings_nothing_changes_nothing() -> None:
    layer, _ = cohorts()
    rounds(layer, START, FakeGrid(KEYS), range(1, 4))
    assert layer.aggregate_train(4, []) == (None, None)
    assert layer.cohorts.rounds == {"0.0": 3, "0.1": 3}


@pytest.mark.parametrize("aggregator", ["fedavg", "fedyogi", "median"])
def test_continues_from_a_saved_state_as_if_never_stopped(aggregator: str) -> None:
    whole, _ = cohorts(aggregator, count=6)
    grid = FakeGrid(KEYS)
    middle = rounds(whole, START, grid, range(1, 5))
    data = tree.to_bytes({"strategy": whole.state_dict()}, "test")
    never_stopped = rounds(whole, middle, grid, range(5, 7))

    resumed, _ = cohorts(aggregator, count=6)
    resumed.load_state_dict(tree.from_bytes(data, "test")["strategy"])
    assert_same(rounds(resumed, middle, FakeGrid(KEYS), range(5, 7)), never_stopped)


def test_signals_are_the_directions_of_updates() -> None:
    layer, _ = cohorts()
    rounds(layer, START, FakeGrid(KEYS), range(1, 2))
    assert isinstance(layer.rule, OddAndEven)
    seen = layer.rule.seen[0]["0"]
    assert seen.keys == KEYS
    assert seen.signals.shape == (8, 8)
    assert len(np.unique(seen.signals, axis=0)) == 8


def test_works_under_quarantine() -> None:
    layer, _ = cohorts(count=6)
    whole = QuarantineLayer(layer)
    result: ArrayRecord = rounds(whole, START, FakeGrid(KEYS), range(1, 5))
    assert all(np.isfinite(array).all() for array in from_record(result).values())


def test_a_reply_that_nobody_asked_for_is_set_aside() -> None:
    def from_elsewhere(message: Message, key: str, look: int) -> list[Message]:
        (reply,) = honest(message, key)
        if message.metadata.message_type == "train":
            reply.metadata.__dict__["_src_node_id"] = 4242
        return [reply]

    layer, notes = cohorts()
    got, _ = one_round(layer, START, FakeGrid(KEYS, {"3": from_elsewhere}))
    wanted, _ = one_round(cohorts()[0], START, FakeGrid(KEYS, {"3": never}))
    assert_same(got, wanted)
    assert [event.client for event in notes.of(Quarantined)] == [Roster.nameless(4242)]


def test_events_of_a_cohorts_own_layers_say_whose_they_are() -> None:
    layer, notes = cohorts(count=6)
    rounds(layer, START, FakeGrid(KEYS), range(1, 4))
    assert [event.cohort for event in notes.of(Selected)] == ["0", "0", "0.0", "0.1"]
    assert {event.cohort for event in notes.of(CohortsTrained)} == {None}


def test_the_layers_of_all_cohorts_share_one_federation() -> None:
    layer, _ = cohorts(count=6)
    whole = QuarantineLayer(layer)
    rounds(whole, START, FakeGrid(KEYS), range(1, 4))
    assert len(layer.cohorts.strategies) == 2
    parts = [whole, layer, *layer.cohorts.strategies.values()]
    assert {id(part.federation) for part in parts} == {id(layer.federation)}


def test_a_rule_is_given_what_it_reads_of_answers_and_the_rest_is_set_aside() -> None:
    class Curious(OddAndEven):
        told: dict[str, Any] = {}  # noqa: RUF012

        def regroup(self, scene: Scene) -> Regrouping | None:
            def read(key: str, reply: Message) -> str:
                if key == "5":
                    raise BadReply("odd")
                return f"{key} of {scene.round}"

            self.told = scene.ask(KEYS[:7], "evaluate", {ARRAYS: START}, {"x": 1}, read)
            return None

    layer, notes = cohorts()
    layer.rule = rule = Curious()
    grid = FakeGrid(KEYS, {"6": lambda m, k, look: never(m, k)})
    one_round(layer, START, grid, 9)
    assert rule.told == {key: f"{key} of 9" for key in "01234"}
    assert [(e.round, e.client, e.reason) for e in notes.of(Quarantined)] == [(9, "5", "odd")]
    for message in grid.of_kind("evaluate"):
        assert message.content[CONFIG]["x"] == 1
        assert message.content[CONFIG][ROUND] == 9
        assert_same(message.content.array_records[ARRAYS], START)
