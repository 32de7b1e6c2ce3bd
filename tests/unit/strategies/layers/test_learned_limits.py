"""Every limit that is learned, attacked by three early clients of eight: nobody else is set aside.

What is usual is :class:`~forager.strategies.federation.plausibility.UsualSize`'s; here each of its
uses is attacked through a whole stack, replies coming one by one, the attackers' first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes import (
    FakeGrid,
    Notes,
    answer,
    honest_records,
    listening_to,
    num_examples,
    one_round,
    small_model,
)
from flwr.app import Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from forager.core.config import read_config
from forager.core.log.events import Quarantined
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import (
    ARRAYS,
    CONFIG,
    CONTROL,
    METRICS,
    NUM_EXAMPLES,
    ROUND,
    TRAIN_LOSS,
    UTILITY,
)
from forager.strategies.build import build_strategy
from forager.strategies.layers.base import Layer
from forager.strategies.layers.quarantine import MostlyOutliers, QuarantineLayer
from forager.strategies.layers.streams import Streams
from test_streams_layer import BALANCED, Device

KEYS = [str(i) for i in range(8)]
EARLY = KEYS[:3]
MODEL = small_model()
FLOATS = [name for name, array in MODEL.items() if array.dtype.kind == "f"]

ATTACKS: dict[str, Callable[[int], float]] = {
    "tiny": lambda number: 1e-9,
    "huge": lambda number: 1e7,
    "zero": lambda number: 0.0,
    "first huge": lambda number: 1e7 if number == 1 else 1.0,
    "first tiny": lambda number: 1e-9 if number == 1 else 1.0,
    "slowly growing": lambda number: 1.4**number,
}

Behave = Callable[[Message, str, float], dict[str, Any]]


def metrics(key: str, **claims: float) -> MetricRecord:
    told = {NUM_EXAMPLES: num_examples(key), TRAIN_LOSS: 0.5, UTILITY: 5.0}
    return MetricRecord({**told, **{name.replace("_", "-"): v for name, v in claims.items()}})


def control(times: float) -> Any:
    return to_record({name: np.full_like(MODEL[name], 0.1 * times) for name in FLOATS})


def update(message: Message, times: float) -> Any:
    before = from_record(message.content.array_records[ARRAYS])
    change = {n: np.asarray(0.1 * times, before[n].dtype) for n in FLOATS}
    return to_record({n: a + change[n] if n in change else a for n, a in before.items()})


CLAIMS: dict[str, Behave] = {
    "samples": lambda message, key, times: {
        METRICS: metrics(key, num_examples=max(1, round(20 * times)))
    },
    "norm": lambda message, key, times: {ARRAYS: update(message, times)},
    "control": lambda message, key, times: {CONTROL: control(times)},
    "utility": lambda message, key, times: {METRICS: metrics(key, utility=5.0 * times)},
}


def behaving(claim: str, attack: str) -> dict[str, Any]:
    def client(message: Message, key: str, look: int = 0) -> list[Message]:
        number = int(str(message.content.config_records[CONFIG][ROUND]))
        records = {**honest_records(message, key), CONTROL: control(1.0), METRICS: metrics(key)}
        if claim != "control":
            del records[CONTROL]
        times = ATTACKS[attack](number) if key in EARLY else 1.0
        return [answer(message, {**records, **CLAIMS[claim](message, key, times)})]

    return dict.fromkeys(KEYS, client)


def blamed(layer: Layer, notes: Notes, behaviours: Callable[[int], dict[str, Any]]) -> set[str]:
    for number in range(1, 9):
        arrays, _ = one_round(layer, to_record(MODEL), FakeGrid(KEYS, behaviours(number)), number)
        assert arrays is not None
    return {event.client for event in notes.of(Quarantined)}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_only_liars_are_set_aside(claim: str, attack: str) -> None:
    axes: dict[str, Any] = {"num-clients": 8, "clients-per-round": 8, "client-selector": "oort"}
    axes["objective"] = "scaffold" if claim == "control" else "sgd"
    layer = build_strategy(read_config(axes))
    who = blamed(layer, listening_to(layer), lambda number: behaving(claim, attack))
    assert who <= set(EARLY)
    assert bool(who) == (attack in ("huge", "first huge")) or attack == "slowly growing"


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("claim", ["velocity", "estimate"])
def test_only_liars_about_streams_are_set_aside(claim: str, attack: str) -> None:
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1, fraction_evaluate=0.0)
    layer = QuarantineLayer(Streams(inner, 3, 4, BALANCED))

    def devices(number: int) -> dict[str, Any]:
        speed, size = dict.fromkeys(KEYS, 1.0), dict.fromkeys(KEYS, 1.0)
        (speed if claim == "velocity" else size).update(
            dict.fromkeys(EARLY, ATTACKS[attack](number))
        )
        return {key: Device([speed[key], speed[key], 0.0], size[key], 0, 0, 0) for key in KEYS}

    who = blamed(layer, listening_to(layer), devices)
    assert who <= set(EARLY)
    assert bool(who) == (attack in ("huge", "first huge")) or attack == "slowly growing"


def test_an_alarm_is_no_success_but_what_was_claimed_is_heard() -> None:
    """If everybody changes at once, a round fails, and the next goes by what they claim now."""
    layer = build_strategy(read_config({"num-clients": 8, "clients-per-round": 8}))
    one_round(layer, to_record(MODEL), FakeGrid(KEYS, behaving("samples", "zero")))

    def louder(message: Message, key: str, look: int = 0) -> list[Message]:
        return [answer(message, {**honest_records(message, key), ARRAYS: update(message, 99.0)})]

    changed = FakeGrid(KEYS, dict.fromkeys(KEYS, louder))
    with pytest.raises(MostlyOutliers):
        one_round(layer, to_record(MODEL), changed, 2)
    arrays, _ = one_round(layer, to_record(MODEL), changed, 2)
    assert arrays is not None
