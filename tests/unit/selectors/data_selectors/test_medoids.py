"""Facility location, CRUST, and the simple rules."""

import tracemalloc
from typing import Any

import forager.selectors.data_selectors.facility_location as module
import numpy as np
import pytest
from forager.selectors.data_selectors.crust import crust, neighbour_counts
from forager.selectors.data_selectors.facility_location import cluster_sizes, facility_location
from forager.selectors.data_selectors.plain import nearest, uniform
from numpy.typing import NDArray
from scipy.spatial.distance import cdist


def plain_greedy(distances: NDArray[Any], budget: int) -> list[int]:
    """The definition: compute every gain at every step."""
    chosen: list[int] = []
    similarity = distances.max(initial=0) - distances
    covered = np.zeros(len(distances))
    while len(chosen) < min(budget, len(distances)):
        gains = np.maximum(similarity - covered, 0).sum(axis=1)
        gains[chosen] = -1
        chosen.append(int(np.argmax(gains)))
        covered = np.maximum(covered, similarity[chosen[-1]])
    return chosen


@pytest.mark.parametrize("kept", [True, False])
def test_lazy_chooses_what_plain_greedy_chooses(kept: bool, monkeypatch: Any) -> None:
    if not kept:
        monkeypatch.setattr(module, "KEPT_BYTES", 0)
        monkeypatch.setattr(module, "BLOCK_BYTES", 2000)
    # Few of them: of two samples that stand only for each other, either will do.
    cases = [(60, 2, 12, 0.7), (80, 7, 16, 3.0), (80, 7, 16, 1e9), (5, 3, 2, 1e9), (1, 1, 1, 1.0)]
    for seed, (size, length, budget, radius) in enumerate(cases):
        features = np.random.default_rng(seed).normal(size=(size, length)) + 100
        squared = cdist(features, features, "sqeuclidean")
        assert facility_location(features, budget).tolist() == plain_greedy(squared, budget)
        within = np.minimum(cdist(features, features), radius)
        assert crust(features, budget, radius).tolist() == plain_greedy(within, budget)


def test_float32_reaches_the_same_objective() -> None:
    features = np.random.default_rng(1).normal(size=(400, 20)) + 10
    squared = cdist(features, features, "sqeuclidean")
    exact = squared[plain_greedy(squared, 40)].min(axis=0).sum()
    chosen = facility_location(features.astype(np.float32), 40)
    assert squared[chosen].min(axis=0).sum() == pytest.approx(exact, rel=1e-5)


def test_equal_samples_go_to_the_lower_index() -> None:
    for rule in (facility_location, lambda rows, budget: crust(rows, budget, 2.0)):
        chosen = rule(np.repeat([[0.0], [1.0]], [3, 2], axis=0), 5)
        assert chosen.tolist() == [0, 3, 1, 2, 4]


def test_memory_is_bounded_for_many_samples(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 2**20)
    monkeypatch.setattr(module, "BLOCK_BYTES", 2**20)
    features = np.random.default_rng(0).normal(size=(3000, 2)).astype(np.float32)
    tracemalloc.start()
    facility_location(features, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20  # all distances would take 34 MB


def test_cluster_sizes_count_everyone_once() -> None:
    features = np.random.default_rng(3).normal(size=(50, 3))
    chosen = facility_location(features, 7)
    expected = np.bincount(np.argmin(cdist(features, features[chosen]), axis=1), minlength=7)
    assert cluster_sizes(features, chosen).tolist() == expected.tolist()
    assert cluster_sizes(features, chosen[:0]).tolist() == []


def test_neighbours_are_those_within_the_radius() -> None:
    gradients = np.random.default_rng(4).normal(size=(50, 3))
    chosen = crust(gradients, 6, 1.0)
    expected = (cdist(gradients[chosen], gradients) < 1.0).sum(axis=1)
    assert neighbour_counts(gradients, chosen, 1.0).tolist() == expected.tolist()
    assert neighbour_counts(gradients, chosen[:0], 1.0).tolist() == []


def test_crust_leaves_out_lone_samples_where_facility_location_takes_them_first() -> None:
    rng = np.random.default_rng(5)
    clusters = np.concatenate([rng.normal(c, 0.1, size=(30, 2)) for c in (0, 3, 6)])
    lone = np.array([[50.0, 0.0], [0.0, -50.0], [60.0, 60.0]])
    rows = np.concatenate([clusters, lone])
    assert (np.sort(crust(rows, 3, radius=1.0)) // 30).tolist() == [0, 1, 2]
    assert {90, 91, 92} & set(facility_location(rows, 3).tolist())


def test_rows_that_are_not_finite_are_never_chosen_and_change_nothing() -> None:
    rows = np.random.default_rng(6).normal(size=(12, 2))
    broken = np.insert(rows, [0, 5], [[np.nan, 1.0], [np.inf, 0.0]], axis=0)
    where = np.flatnonzero(np.isfinite(broken).all(axis=1))
    for rule in (
        facility_location,
        lambda rows, budget: crust(rows, budget, 1.0),
        lambda rows, budget: nearest(rows, [0.0, 0.0], budget),
    ):
        assert rule(broken, 9).tolist() == where[rule(rows, 9)].tolist()
        assert len(rule(broken, 99)) == 12
    chosen = facility_location(rows, 3)
    assert cluster_sizes(broken, where[chosen]).tolist() == cluster_sizes(rows, chosen).tolist()
    assert (
        neighbour_counts(broken, where[chosen], 1.0).tolist()
        == neighbour_counts(rows, chosen, 1.0).tolist()
    )


def test_nobody_and_no_budget() -> None:
    for rows, budget in ((np.zeros((0, 2)), 3), (np.ones((4, 2)), 0), (np.full((2, 2), np.nan), 1)):
        assert len(facility_location(rows, budget)) == 0
        assert len(crust(rows, budget, 1.0)) == 0
        assert len(nearest(rows, [1.0, 1.0], budget)) == 0
    assert facility_location(np.zeros((0, 2)), 3).dtype == np.intp


def test_nearest_ranks_by_distance_then_by_index() -> None:
    rows = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    assert nearest(rows, [0.0, 0.0], 3).tolist() == [3, 1, 2]
    many = np.random.default_rng(7).normal(size=(200, 5)).astype(np.float32)
    expected = np.argsort(np.linalg.norm(many - 0.3, axis=1), kind="stable")
    assert nearest(many, np.full(5, 0.3), 50).tolist() == expected[:50].tolist()


def test_uniform_is_seeded_and_fair() -> None:
    rng = np.random.default_rng(8)
    hits = np.zeros(6)
    for _ in range(2000):
        chosen = uniform(6, 2, rng)
        assert len(set(chosen.tolist())) == 2
        hits[chosen] += 1
    assert (abs(hits - 2000 / 3) < 90).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: facility_location(np.ones(3), 1), r"features: expected one row per sample, got"),
        (lambda: facility_location(np.ones((3, 1)), -1), "budget: expected 0 or more, got -1"),
        (lambda: crust(np.ones((3, 1)), 1, 0.0), "radius: expected a number above 0, got 0.0"),
        (lambda: crust(np.ones((3, 1)), -2, 1.0), "budget: expected 0 or more, got -2"),
        (lambda: nearest(np.ones((3, 1)), [1, 2], 1), "target: expected 1 values as in a row"),
        (lambda: nearest(np.ones((3, 1)), [np.inf], 1), "target: expected finite values"),
        (lambda: nearest(np.ones((3, 1)), [1.0], -1), "budget: expected 0 or more, got -1"),
        (lambda: nearest(np.ones(3), [1.0], 1), "gradients: expected one row per sample"),
        (lambda: uniform(3, -1, np.random.default_rng(0)), "budget: expected 0 or more, got -1"),
    ],
)
def test_errors_name_the_argument(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
