"""Promises that every rule for choosing samples keeps."""

import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from forager.selectors.data_selectors.coreset import (
    RULES,
    ChosenSamples,
    RuleSettings,
    choose_coreset,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

rules = pytest.mark.parametrize("rule", RULES)
DRAWN = ("random",)  # by chance
Sample = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def samples(size: int, length: int = 6, classes: int = 4, seed: int = 0) -> Sample:
    """Rows, labels and class targets."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, size)
    targets = rng.normal(size=(classes, length))
    return targets[labels] + rng.normal(size=(size, length)), labels, targets


def choose(rule: str, data: Sample, budget: int, seed: int = 0, **changes: Any) -> ChosenSamples:
    rows, labels, targets = data
    rng = np.random.default_rng(seed)
    return choose_coreset(rule, rows, labels, budget, targets, rng, RuleSettings(**changes))


def assert_sound(coreset: ChosenSamples, rule: str, size: int, budget: int) -> None:
    indices, weights = coreset.indices, coreset.weights
    assert isinstance(indices, np.ndarray)
    assert indices.dtype.kind == "i"
    assert indices.shape == weights.shape == (len(coreset),)
    assert (np.diff(indices) > 0).all()  # ascending, so none twice
    assert all(0 <= index < size for index in indices)
    assert len(coreset) == (size if rule == "full" else min(budget, size))
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert not len(coreset) or weights.mean() == pytest.approx(1)


def same(a: ChosenSamples, b: ChosenSamples) -> bool:
    return a.indices.tolist() == b.indices.tolist() and a.weights.tolist() == b.weights.tolist()


@rules
def test_seeded_calls_repeat(rule: str) -> None:
    data = samples(60)
    assert same(choose(rule, data, 20), choose(rule, data, 20))
    other_seed = choose(rule, data, 20, seed=1)
    assert same(choose(rule, data, 20), other_seed) == (rule not in DRAWN)


@rules
def test_draws_from_no_generator_but_the_one_it_is_given(rule: str) -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    choose(rule, samples(60), 20)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]


@rules
def test_inputs_are_not_changed(rule: str) -> None:
    data = samples(50)
    before = [array.copy() for array in data]
    for array in data:
        array.flags.writeable = False
    choose(rule, data, 15)
    for array, copy in zip(data, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@rules
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_never_too_many_never_twice_never_out_of_range(rule: str, data: st.DataObject) -> None:
    size, budget = data.draw(st.integers(0, 25)), data.draw(st.integers(0, 30))
    rows, labels, targets = samples(size, 3, 3, seed=data.draw(st.integers(0, 3)))
    if data.draw(st.booleans()):
        rows = rows.round()  # many ties
    nonnegative = data.draw(st.booleans())
    coreset = choose(rule, (rows, labels, targets), budget, nonnegative=nonnegative)
    assert_sound(coreset, rule, size, budget)


@rules
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("budget", [0, 1, 5])
def test_works_with_nothing_and_with_one(rule: str, size: int, budget: int) -> None:
    assert_sound(choose(rule, samples(size), budget), rule, size, budget)


@rules
def test_works_with_very_many(rule: str) -> None:
    data = samples(10_000, length=8, classes=10)
    started = time.process_time()
    assert_sound(choose(rule, data, 200), rule, 10_000, 200)
    assert time.process_time() - started < 10


@rules
def test_memory_stays_below_a_few_copies_of_the_data(rule: str) -> None:
    data = samples(2000, length=100, classes=4)
    copy = data[0].nbytes
    tracemalloc.start()
    choose(rule, data, 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * copy


@rules
def test_the_order_of_the_samples_does_not_matter(rule: str) -> None:
    rows, labels, targets = samples(60)
    order = np.random.default_rng(9).permutation(60)
    # A small budget, a large radius: of two medoids that stand only for each other, either
    # would do.
    plain = choose(rule, (rows, labels, targets), 8, radius=50.0)
    shuffled = choose(rule, (rows[order], labels[order], targets), 8, radius=50.0)
    agree = sorted(order[shuffled.indices].tolist()) == plain.indices.tolist()
    assert agree == (rule not in DRAWN)


@rules
def test_single_precision_chooses_the_same(rule: str) -> None:
    rows, labels, targets = samples(80)
    double = choose(rule, (rows, labels, targets), 12, radius=50.0)
    lower = rows.astype(np.float32), labels, targets.astype(np.float32)
    single = choose(rule, lower, 12, radius=50.0)
    assert single.indices.tolist() == double.indices.tolist()
    np.testing.assert_allclose(single.weights, double.weights, rtol=1e-3, atol=1e-5)


@rules
def test_broken_samples_change_nothing_for_the_others(rule: str) -> None:
    rows, labels, targets = samples(60)
    broken = np.concatenate([rows, np.full((15, 6), np.nan)])
    more = np.concatenate([labels, np.arange(15) % 4])
    assert same(
        choose(rule, (broken, more, targets), 20), choose(rule, (rows, labels, targets), 20)
    )


@rules
def test_labels_out_of_range_are_named(rule: str) -> None:
    rows, labels, targets = samples(10)
    for wrong in (4, -1):
        labels[3] = wrong
        with pytest.raises(ValueError, match=f"labels: expected 0 to 3, got {wrong}"):
            choose(rule, (rows, labels, targets), 5)
