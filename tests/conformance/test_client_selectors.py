"""Promises that every client selector keeps."""

import copy
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forager.core.methods.base import load
from forager.core.methods.catalogue import methods
from forager.core.storage import tree
from forager.selectors.client_selectors.age import OldestFirst, ShuffledTurns
from forager.selectors.client_selectors.base import Candidates, ClientSelector
from forager.selectors.client_selectors.by_loss import Flad, LocalLoss, PowerOfChoice
from forager.selectors.client_selectors.cluster_oracle import ClusterOracle
from forager.selectors.client_selectors.cosage import CosAge
from forager.selectors.client_selectors.dissimilarity import (
    DissimilaritySampling,
    MostDissimilar,
    MostDissimilarAfterCooldown,
)
from forager.selectors.client_selectors.divfl import DivFl
from forager.selectors.client_selectors.fed_cbs import FedCbs
from forager.selectors.client_selectors.fedcor import FedCor
from forager.selectors.client_selectors.hics import Hics
from forager.selectors.client_selectors.oort import Oort
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

# What each name must stand for, and one with settings of its own.
CLASSES: dict[str, Callable[[], ClientSelector]] = {
    "aoi": OldestFirst,
    "turns": ShuffledTurns,
    "cluster-oracle": ClusterOracle,
    "cosage": CosAge,
    "dissimilarity": MostDissimilar,
    "dissimilarity-cooldown": MostDissimilarAfterCooldown,
    "dissimilarity-sampling": DissimilaritySampling,
    "divfl": DivFl,
    "fed-cbs": FedCbs,
    "fedcor": FedCor,
    "fedcor after its warm-up": lambda: FedCor(warm_up=1, every=2),
    "flad": Flad,
    "hics": Hics,
    "local-loss": LocalLoss,
    "oort": Oort,
    "power-of-choice": PowerOfChoice,
    "cosage with a cooldown": lambda: CosAge(silent_ratio=0.6),
}
REGISTERED = methods("client-selector")
NAMES = sorted({*REGISTERED, *CLASSES})
OBSERVATIONS = {
    "similarity",
    "loss",
    "histogram",
    "utility",
    "seconds",
    "signature",
    "num-examples",
    "update",
    "bias-update",
}
selectors = pytest.mark.parametrize("name", NAMES)


def make(name: str) -> ClientSelector:
    selector = (CLASSES[name] if name in CLASSES else load(REGISTERED[name].core))()
    assert isinstance(selector, ClientSelector)
    return selector


def observe(size: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """All that any selector may look at; some clients have never taken part."""
    participated = rng.random(size) < 0.7
    return {
        "age": rng.integers(0, 6, size),
        "participated": participated,
        "similarity": rng.uniform(-1, 1, size),
        "loss": rng.random(size),
        "histogram": rng.integers(0, 4, (size, 4)),
        "signature": rng.integers(0, 9, (size, 6)),
        "utility": np.where(participated, rng.random(size), np.nan),
        "seconds": np.where(participated, rng.random(size), np.nan),
        "num-examples": rng.integers(1, 90, size),
        "update": np.where(participated[:, None], rng.normal(size=(size, 5)), np.nan),
        "bias-update": np.where(participated[:, None], rng.normal(size=(size, 4)), np.nan),
    }


def crowd(size: int, prefix: str = "") -> Candidates:
    """Candidates with all the observations that any selector may look at."""
    observations = observe(size, np.random.default_rng(size))
    return Candidates([f"{prefix}{i}" for i in range(size)], observations)


def several(
    selector: ClientSelector, candidates: Candidates, count: int, times: int, seed: int = 3
) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [selector.select(candidates, count, rng).tolist() for _ in range(times)]


def assert_sound(positions: Any, size: int, count: int) -> None:
    assert isinstance(positions, np.ndarray)
    assert positions.ndim == 1
    assert positions.dtype.kind == "i"
    assert len(positions) <= min(count, size)
    assert len(set(positions.tolist())) == len(positions)
    assert all(0 <= position < size for position in positions)


@selectors
def test_seeded_calls_repeat(name: str) -> None:
    assert several(make(name), crowd(20), 7, 6) == several(make(name), crowd(20), 7, 6)


@selectors
def test_draws_from_no_generator_but_the_one_it_is_given(name: str) -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    np.random.seed(1)
    first = several(make(name), crowd(30), 5, 4)
    np.random.seed(2)
    assert several(make(name), crowd(30), 5, 4) == first
    assert len(before) == 624


@selectors
def test_state_survives_a_save_and_continues_identically(name: str) -> None:
    whole, rng = make(name), np.random.default_rng(5)
    for _ in range(4):
        whole.select(crowd(15), 4, rng)
    data = tree.to_bytes({"selector": whole.state_dict(), "rng": rng.bit_generator.state}, "test")
    rest = [whole.select(crowd(15), 4, rng).tolist() for _ in range(8)]

    saved = tree.from_bytes(data, "test")
    fresh, other = make(name), np.random.default_rng(99)
    fresh.load_state_dict(saved["selector"])
    other.bit_generator.state = saved["rng"]
    assert [fresh.select(crowd(15), 4, other).tolist() for _ in range(8)] == rest


@selectors
def test_a_taken_state_does_not_change_with_later_calls(name: str) -> None:
    selector = make(name)
    several(selector, crowd(9), 3, 2)
    state = selector.state_dict()
    before = copy.deepcopy(state)
    several(selector, crowd(9), 3, 5)
    np.testing.assert_equal(state, before)


@selectors
def test_a_loaded_state_is_not_changed_by_calls(name: str) -> None:
    selector = make(name)
    several(selector, crowd(9), 3, 2)
    state = copy.deepcopy(selector.state_dict())
    before = copy.deepcopy(state)
    other = make(name)
    other.load_state_dict(state)
    several(other, crowd(9), 3, 5)
    np.testing.assert_equal(state, before)


@selectors
def test_inputs_are_not_changed(name: str) -> None:
    candidates = crowd(12)
    keys, observations = list(candidates.keys), copy.deepcopy(dict(candidates.observations))
    several(make(name), candidates, 5, 4)
    assert list(candidates.keys) == keys
    np.testing.assert_equal(dict(candidates.observations), observations)


@selectors
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_never_too_many_never_twice_never_out_of_range(name: str, data: st.DataObject) -> None:
    selector, rng = make(name), np.random.default_rng(0)
    for _ in range(data.draw(st.integers(1, 6))):
        size, count = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 15))
        keys = data.draw(st.lists(st.sampled_from("abcdefghijkl"), min_size=size, max_size=size))
        candidates = Candidates(keys, observe(size, rng))
        asked = selector.shortlist(candidates, count, rng)
        assert_sound(asked, size, size)
        assert len(asked) >= min(count, size)
        assert_sound(selector.select(candidates, count, rng), size, count)
        assert_sound(selector.select(candidates.take(asked), count, rng), len(asked), count)


@selectors
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_works_with_nobody_and_with_one(name: str, size: int, count: int) -> None:
    selector = make(name)
    for _ in range(3):
        positions = selector.select(crowd(size), count, np.random.default_rng(0))
        assert_sound(positions, size, count)
        assert len(positions) == min(size, count)


@pytest.fixture(scope="module")
def very_many() -> Candidates:
    return crowd(100_000)


@selectors
def test_works_with_very_many(name: str, very_many: Candidates) -> None:
    selector = make(name)
    started = time.process_time()
    for _ in range(2):  # the second time it knows them
        assert_sound(selector.select(very_many, 1000, np.random.default_rng(0)), 100_000, 1000)
    assert time.process_time() - started < 6


@selectors
def test_takes_as_many_as_it_may_if_there_are_enough(name: str) -> None:
    for positions in several(make(name), crowd(10), 4, 5):
        assert len(positions) == 4
    for positions in several(make(name), crowd(3), 4, 5):
        assert make(name).takes_fewer or sorted(positions) == [0, 1, 2]


@selectors
def test_memory_stays_bounded_over_a_long_run(name: str) -> None:
    selector, candidates = make(name), crowd(50)
    several(selector, candidates, 10, 50)
    size = len(json.dumps(selector.state_dict()))
    tracemalloc.start()
    several(selector, candidates, 10, 50)
    before, _ = tracemalloc.get_traced_memory()
    several(selector, candidates, 10, 200)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(json.dumps(selector.state_dict())) < 2 * size + 1000
    assert after - before < 80_000


@selectors
def test_memory_stays_bounded_when_names_never_come_back(name: str) -> None:
    """Devices without a key get a new name at every restart."""
    selector, rng = make(name), np.random.default_rng(0)
    for number in range(300):
        selector.select(crowd(20, prefix=f"life-{number}-"), 10, rng)
    assert len(json.dumps(selector.state_dict())) < 30_000


@selectors
def test_clients_may_come_and_go(name: str) -> None:
    selector, rng = make(name), np.random.default_rng(1)
    everyone = [str(i) for i in range(30)]
    for number in range(60):
        present = [key for key in everyone if (int(key) * 7 + number) % 5]
        positions = selector.select(Candidates(present, observe(len(present), rng)), 6, rng)
        assert_sound(positions, len(present), 6)
        assert len(positions) == 6


@selectors
def test_keys_may_be_any_text(name: str) -> None:
    """Clients name themselves: their names end up in saved state."""
    names = ["", "a/b", "a", "__array__", "käse \N{SNOWMAN}", "0" * 200, "\0"]
    odd = Candidates(names, observe(len(names), np.random.default_rng(0)))
    selector = make(name)
    several(selector, odd, 7, 3)
    fresh = make(name)
    fresh.load_state_dict(tree.from_bytes(tree.to_bytes(selector.state_dict(), "t"), "t"))
    assert several(fresh, odd, 3, 3) == several(selector, odd, 3, 3)


@selectors
def test_the_shortlist_is_seeded_and_changes_no_input(name: str) -> None:
    candidates = crowd(40)
    observations = copy.deepcopy(dict(candidates.observations))
    asked = [
        make(name).shortlist(candidates, 5, np.random.default_rng(1)).tolist() for _ in range(2)
    ]
    assert asked[0] == asked[1]
    np.testing.assert_equal(dict(candidates.observations), observations)


@selectors
def test_says_what_it_looks_at(name: str) -> None:
    """Nothing but what it needs is observed for it: the rest may cost messages."""
    selector, rng = make(name), np.random.default_rng(0)
    assert selector.needs <= OBSERVATIONS
    assert selector.oracle == ("histogram" in selector.needs)
    seen = {k: v for k, v in observe(9, rng).items() if k in {"age", "participated"}}
    asked = selector.shortlist(Candidates(list("abcdefghi"), seen), 3, rng)
    seen |= {k: v for k, v in observe(9, rng).items() if k in selector.needs}
    candidates = Candidates(list("abcdefghi"), seen).take(asked)
    assert len(selector.select(candidates, 3, rng)) == 3


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_needed_observation_that_is_missing_is_named(name: str) -> None:
    selector, rng = make(name), np.random.default_rng(0)
    for needed in selector.needs - {"num-examples"}:  # without sizes, all count as equally large
        seen = {k: v for k, v in observe(5, rng).items() if k != needed}
        with pytest.raises(ValueError, match=f"observation '{needed}' is missing"):
            selector.select(Candidates(list("abcde"), seen), 2, rng)


@pytest.mark.parametrize("unknown", ["similarity", "loss"])
@selectors
def test_who_did_not_answer_is_not_chosen(name: str, unknown: str) -> None:
    selector, rng = make(name), np.random.default_rng(0)
    seen = observe(10, rng)
    seen[unknown][::2] = np.nan
    chosen = selector.select(Candidates(list("abcdefghij"), seen), 10, rng)
    expected = [1, 3, 5, 7, 9] if unknown in selector.needs else list(range(10))
    assert set(chosen.tolist()) <= set(expected)
    assert selector.takes_fewer or len(chosen) == len(expected)


@pytest.mark.parametrize("name", sorted(CLASSES.keys() & set(REGISTERED)))
def test_a_name_stands_for_its_class(name: str) -> None:
    assert load(REGISTERED[name].core) is CLASSES[name]
