from collections.abc import Callable, Iterable
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
from forager.core.log.events import Quarantined, Selected
from forager.core.storage import tree
from forager.core.wire.arrays import from_record, to_record
from forager.core.wire.keys import CONTROL
from forager.strategies.build import build_strategy
from forager.strategies.layers.base import Layer
from forager.strategies.layers.scaffold import ScaffoldLayer

KEYS = [str(i) for i in range(8)]
BAD = "3"
MODEL = small_model()
FLOATS = [name for name, array in MODEL.items() if array.dtype.kind == "f"]


def change(key: str) -> dict[str, Any]:
    """All changes are equally long: none is shortened."""
    sign = (-1) ** (int(key) % 3 == 0)
    return {name: np.full_like(MODEL[name], sign) for name in FLOATS}


def total(keys: Iterable[str]) -> float:
    return sum(float(change(key)[FLOATS[0]].flat[0]) for key in keys)


def client(records: dict[str, Any] | Callable[[Message], dict[str, Any]]) -> Any:
    """Return a client that trains honestly and adds these records."""

    def behave(message: Message, key: str, look: int = 0) -> list[Message]:
        return [answer(message, {**honest_records(message, key), **records})]  # type: ignore[dict-item]

    return behave


def grid(**spoilt: Any) -> FakeGrid:
    behaviours = {key: client({CONTROL: to_record(change(key))}) for key in KEYS}
    return FakeGrid(KEYS, behaviours | spoilt, wire=True)


def stack(count: int = 8, **more: Any) -> tuple[Layer, ScaffoldLayer, Notes]:
    keys: dict[str, Any] = {"objective": "scaffold", "num-clients": 8, "clients-per-round": count}
    strategy = build_strategy(read_config({**keys, **more}))
    return strategy, inside(strategy, ScaffoldLayer), listening_to(strategy)


def test_the_first_variate_is_zero_and_not_sent() -> None:
    strategy, layer, _ = stack()
    first, second = grid(), grid()
    one_round(strategy, to_record(MODEL), first)
    assert all(CONTROL not in message.content for message in first.of_kind("train"))
    one_round(strategy, to_record(MODEL), second, 2)
    mean = total(KEYS) / len(KEYS)
    for message in second.of_kind("train"):
        sent = from_record(message.content.array_records[CONTROL])
        assert list(sent) == FLOATS
        assert all((array == mean).all() and array.dtype == np.float32 for array in sent.values())
    assert all((array == 2 * mean).all() for array in layer.control.values())


def test_changes_count_by_all_clients_not_by_those_who_took_part() -> None:
    strategy, layer, notes = stack(count=2)
    one_round(strategy, to_record(MODEL), grid())
    (selected,) = notes.of(Selected)
    expected = total(selected.chosen) / len(KEYS)
    assert all(np.allclose(array, expected) for array in layer.control.values())


def _of_shape(shape: tuple[int, ...]) -> ArrayRecord:
    return to_record({**change(BAD), FLOATS[0]: np.ones(shape, np.float32)})


SPOILT = {
    "missing": {},
    "not arrays": {CONTROL: ConfigRecord({"c": 1})},
    "other names": {CONTROL: to_record({"x": np.ones(3, np.float32)})},
    "another shape": {CONTROL: _of_shape((3, 4))},
    "another type": {CONTROL: to_record({n: a.astype(np.float64) for n, a in change(BAD).items()})},
    "not finite": {CONTROL: to_record({n: a * np.nan for n, a in change(BAD).items()})},
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_reply_with_a_bad_change_is_set_aside(case: str) -> None:
    strategy, layer, notes = stack()
    arrays, _ = one_round(strategy, to_record(MODEL), grid(**{BAD: client(SPOILT[case])}))
    assert [e.client for e in notes.of(Quarantined)] == [BAD]
    expected = total(key for key in KEYS if key != BAD) / len(KEYS)
    assert all(np.allclose(array, expected) for array in layer.control.values())

    without, _, _ = stack()
    honest_seven, _ = one_round(without, to_record(MODEL), grid(**{BAD: lambda *_: []}))
    assert_same(arrays, honest_seven)


def times(factor: float) -> Any:
    """A client whose change is as many times what it should be."""
    return client({CONTROL: to_record({n: factor * a for n, a in change(BAD).items()})})


def test_nobody_changes_the_variate_by_many_times_the_usual() -> None:
    """A lie that is not set aside counts for 0.4 ``quarantine.norm-factor`` times the usual."""
    strategy, layer, notes = stack()
    for number in (1, 2):
        one_round(strategy, to_record(MODEL), grid(**{BAD: times(-8.0)}), number)
    assert not notes.of(Quarantined)
    others = total(key for key in KEYS if key != BAD)
    expected = 2 * (others - 2 * total([BAD])) / len(KEYS)
    assert all(np.allclose(array, expected) for array in layer.control.values())


@pytest.mark.parametrize(("factor", "most"), [(-10.0, 3.0), (-40.0, 3.0), (-40.0, 20.0)])
def test_how_long_a_change_may_be_follows_the_quarantine(factor: float, most: float) -> None:
    strategy, _, notes = stack(**{"quarantine.norm-factor": most})
    one_round(strategy, to_record(MODEL), grid(**{BAD: times(factor)}))
    assert [e.client for e in notes.of(Quarantined)] == [BAD] * (abs(factor) > 10 * most)


@pytest.mark.parametrize("factor", [0.0, 1e-12], ids=["zero", "tiny"])
def test_a_first_change_of_nothing_stops_nobody_also_after_a_save(factor: float) -> None:
    strategy, layer, notes = stack()
    early = {key: times(factor) for key in KEYS[:3]}
    one_round(strategy, to_record(MODEL), grid(**early))
    resumed, fresh, later = stack()
    resumed.load_state_dict(strategy.state_dict())
    one_round(resumed, to_record(MODEL), grid(), 2)
    assert not notes.of(Quarantined) + later.of(Quarantined)
    assert all(np.any(fresh.control[name] != layer.control[name]) for name in FLOATS)


def test_the_aggregator_sees_what_it_would_see_without() -> None:
    plain = build_strategy(read_config({"num-clients": 8, "clients-per-round": 8}))
    expected, _ = one_round(plain, to_record(MODEL), FakeGrid(KEYS, wire=True))
    assert_same(one_round(stack()[0], to_record(MODEL), grid())[0], expected)


def test_state_survives_a_save() -> None:
    strategy, layer, _ = stack()
    one_round(strategy, to_record(MODEL), grid())
    data = tree.to_bytes(strategy.state_dict(), "test")
    other, fresh, _ = stack()
    other.load_state_dict(tree.from_bytes(data, "test"))
    one_round(strategy, to_record(MODEL), grid(), 2)
    one_round(other, to_record(MODEL), grid(), 2)
    np.testing.assert_equal(fresh.control, layer.control)


def test_cohorts_have_models_of_their_own_and_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"objective = 'scaffold': .*cohorts"):
        read_config({"objective": "scaffold", "cohorts": "split-test"})
