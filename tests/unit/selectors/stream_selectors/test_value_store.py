import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from forager.core.storage import tree
from forager.selectors.stream_selectors.ode import ValueStore
from hypothesis import given, settings
from hypothesis import strategies as st

VALUES = st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0, math.nan, math.inf])


@settings(max_examples=100, deadline=None)
@given(
    capacity=st.integers(0, 4),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["offer", "offer", "offer", "refresh", "discard"]),
            st.integers(0, 7),
            VALUES,
        ),
        max_size=40,
    ),
)
def test_the_store_is_a_plain_list_of_the_best(capacity: int, steps: list[Any]) -> None:
    store = ValueStore(capacity)
    plain: dict[int, list[float]] = {}  # key -> [value, arrival]
    for clock, (verb, key, value) in enumerate(steps):
        if verb == "discard":
            plain.pop(key, None)
            store.discard(key)
        elif key in plain:
            if math.isfinite(value):
                plain[key][0] = value
            assert store.offer(key, value) is None
        elif verb == "offer":
            expected = None
            if math.isfinite(value) and capacity:
                if len(plain) < capacity:
                    plain[key] = [value, clock]
                else:
                    worst = min(plain, key=lambda k: plain[k])
                    if value >= plain[worst][0]:
                        expected = worst
                        del plain[worst]
                        plain[key] = [value, clock]
            assert store.offer(key, value) == expected
        assert set(store.keys()) == set(plain)
        assert {k: store.value(k) for k in plain} == {k: v for k, (v, _) in plain.items()}


def test_resizing_lets_the_lowest_go() -> None:
    store = ValueStore(5)
    for key, value in enumerate([3.0, 1.0, 4.0, 1.0, 5.0]):
        store.offer(key, value)
    assert store.resize(2) == [1, 3, 0]
    assert store.keys() == [2, 4]
    assert store.offer(9, 4.5) == 2
    assert store.resize(0) == [9, 4]


def test_memory_does_not_grow_with_offers_or_refreshes() -> None:
    store = ValueStore(20)
    rng = np.random.default_rng(0)

    def play(count: int) -> None:
        for key, value in enumerate(rng.random(count).tolist()):
            store.offer(key % 97, value)
            if key % 97 in store:
                store.refresh(key % 97, -value)

    play(5_000)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    play(20_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000


def test_state_continues_identically_and_shrinks_to_the_capacity() -> None:
    store = ValueStore(3)
    for key, value in zip("abcd", [1.0, 1.0, 2.0, 1.0], strict=True):
        store.offer(key, value)
    state = tree.from_bytes(tree.to_bytes(store.state_dict(), "t"), "t")
    other, smaller, empty = ValueStore(3), ValueStore(1), ValueStore(2)
    other.load_state_dict(state)
    smaller.load_state_dict(state)
    assert other.keys() == store.keys() == ["b", "c", "d"]
    assert other.offer("e", 1.0) == store.offer("e", 1.0) == "b"
    assert smaller.keys() == ["c"]
    empty.load_state_dict(ValueStore(2).state_dict())
    assert empty.keys() == []


@pytest.mark.parametrize("capacity", [-1, 1.5, True, "3"])
def test_a_capacity_is_a_whole_number(capacity: Any) -> None:
    with pytest.raises(ValueError, match="capacity: expected a whole number of 0 or more, got"):
        ValueStore(capacity)
