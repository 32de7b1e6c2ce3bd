"""Promises that every rule for a stream keeps."""

import copy
import json
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from forager.core.storage import tree
from forager.selectors.stream_selectors.base import Offered, StreamSelector
from forager.selectors.stream_selectors.ode import OdeSelector
from forager.selectors.stream_selectors.plain import Fifo, Reservoir, Unlimited
from forager.selectors.stream_selectors.ranked import FedBalancer, GradientNorm, HighLoss, Sld
from forager.selectors.stream_selectors.titan import Titan
from hypothesis import given, settings
from hypothesis import strategies as st

LABELS = 4
RULES: dict[str, Callable[[int, int], StreamSelector]] = {
    "fedbalancer": FedBalancer,
    "fifo": Fifo,
    "gradient-norm": GradientNorm,
    "high-loss": HighLoss,
    "ode": OdeSelector,
    "ode with a plan": lambda capacity, seed: OdeSelector(
        capacity, seed, quota=[capacity - capacity // 3, 0, capacity // 3]
    ),
    "reservoir": Reservoir,
    "sld": Sld,
    "titan": Titan,
    "unlimited": Unlimited,
}
FIELDS = {"nothing": "", "loss": "losses", "norm": "gradient_norms", "value": "values"}
rules = pytest.mark.parametrize("name", sorted(RULES))
bounded = pytest.mark.parametrize("name", sorted(RULES.keys() - {"unlimited"}))


def make(name: str, capacity: int = 6, seed: int = 3) -> StreamSelector:
    return RULES[name](capacity, seed)


def arrivals(count: int, seed: int = 0, keys: int = 10**6) -> Offered:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=count)
    names = rng.integers(0, keys, count)
    return Offered(names, names % LABELS, np.abs(scores), np.abs(scores) + 1, scores)


def play(rule: StreamSelector, batches: int, seed: int = 0) -> list[list[int]]:
    decisions = [rule.offer(arrivals(9, seed + number, 60)) for number in range(batches)]
    return [[*d.kept.tolist(), -1, *d.evicted.tolist()] for d in decisions]


@rules
def test_seeded_calls_repeat_and_touch_no_other_generator(name: str) -> None:
    np.random.seed(1)
    first = play(make(name), 20)
    np.random.seed(2)
    assert play(make(name), 20) == first


@rules
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_decisions_tell_exactly_what_changed(name: str, data: st.DataObject) -> None:
    """Who follows the decisions holds what the rule holds: never too many, never one twice."""
    capacity = data.draw(st.integers(0, 7))
    rule = make(name, capacity)
    held: dict[int, int] = {}
    for number in range(data.draw(st.integers(1, 8))):
        batch = arrivals(data.draw(st.integers(0, 15)), number, keys=30)
        decision = rule.offer(batch)
        for key in decision.evicted.tolist():
            del held[key]
        for position in decision.kept.tolist():
            assert batch.keys[position] not in held
            held[int(batch.keys[position])] = int(batch.labels[position])
        assert dict(zip(rule.kept.tolist(), rule.labels.tolist(), strict=True)) == held
        assert len(rule) == len(rule.values) == len(held)
        assert name == "unlimited" or len(held) <= capacity


@rules
def test_state_survives_a_save_and_continues_identically(name: str) -> None:
    whole, fresh = make(name), make(name, seed=99)
    play(whole, 15)
    data = tree.to_bytes(whole.state_dict(), "test")
    rest = play(whole, 15, seed=50)
    fresh.load_state_dict(tree.from_bytes(data, "test"))
    assert play(fresh, 15, seed=50) == rest
    np.testing.assert_equal(fresh.state_dict(), whole.state_dict())


@rules
def test_a_state_is_not_changed_by_later_calls(name: str) -> None:
    rule, other = make(name), make(name)
    play(rule, 5)
    state = rule.state_dict()
    before = copy.deepcopy(state)
    other.load_state_dict(state)
    play(rule, 5, seed=9)
    play(other, 5, seed=9)
    np.testing.assert_equal(state, before)


@bounded
def test_a_state_of_more_than_the_capacity_is_cut(name: str) -> None:
    large, small = make(name, 9), make(name, 4)
    play(large, 10)
    small.load_state_dict(large.state_dict())
    assert len(small) <= 4
    assert set(small.kept.tolist()) <= set(large.kept.tolist())
    play(small, 10, seed=5)
    assert len(small) <= 4


@rules
def test_inputs_are_not_changed(name: str) -> None:
    batch = arrivals(30)
    before = copy.deepcopy(batch)
    rule = make(name)
    rule.offer(batch)
    rule.revalue(batch)
    np.testing.assert_equal(vars(batch), vars(before))


@rules
def test_works_with_nothing_and_without_capacity(name: str) -> None:
    rule = make(name)
    empty = Offered([], [], losses=[], gradient_norms=[], values=[])
    assert rule.offer(empty).kept.size == rule.offer(empty).evicted.size == len(rule) == 0
    rule.revalue(empty)
    assert rule.kept.dtype == np.int64
    none = make(name, capacity=0)
    decision = none.offer(arrivals(20))
    assert len(none) == len(decision.kept) == (20 if name == "unlimited" else 0)


@rules
def test_looks_at_nothing_but_what_it_needs(name: str) -> None:
    rule, batch = make(name), arrivals(12)
    field = FIELDS[rule.needs]
    needed = {field: getattr(batch, field)} if field else {}
    rule.offer(Offered(batch.keys, batch.labels, **needed))
    assert len(rule)
    if rule.needs in {"loss", "norm"}:
        with pytest.raises(ValueError, match=f"{field}: needed by this rule, and not given"):
            rule.offer(Offered(batch.keys, batch.labels))


@pytest.mark.parametrize("name", sorted(RULES.keys() - {"unlimited", "fifo", "reservoir"}))
def test_unusable_scores_are_never_stored(name: str) -> None:
    rule = make(name, 50)
    scores = np.array([np.nan, np.inf, -np.inf] * 10 + [0.5])
    zeros = np.zeros(31, dtype=int)
    rule.offer(Offered(np.arange(31), zeros, scores, scores, scores))
    assert rule.kept.tolist() == [30]


@rules
def test_a_lost_sample_can_be_forgotten_and_offered_again(name: str) -> None:
    rule, batch = make(name), Offered([5], [0], [1.0], [1.0], [1.0])
    rule.offer(batch)
    rule.discard([5, 77])
    assert len(rule) == 0
    assert rule.offer(batch).kept.tolist() == [0]
    rule.discard(rule.kept)
    play(rule, 6)
    assert len(rule.values) == len(rule)


@bounded
def test_memory_stays_bounded_whatever_the_stream(name: str) -> None:
    rule = make(name, 10)
    play(rule, 60)
    size = len(json.dumps(rule.state_dict(), default=np.ndarray.tolist))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(300):
        rule.offer(arrivals(20, number))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 50_000
    assert len(json.dumps(rule.state_dict(), default=np.ndarray.tolist)) < 2 * size + 2000


@rules
def test_works_with_very_many(name: str) -> None:
    rule, batch = make(name, 1000), arrivals(50_000)
    started = time.process_time()
    rule.offer(batch)
    assert name == "unlimited" or len(rule) <= 1000
    assert time.process_time() - started < 5
