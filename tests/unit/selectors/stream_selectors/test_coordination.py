from typing import Any

import numpy as np
import pytest
from forager.selectors.stream_selectors.ode import class_weights, coordinate
from hypothesis import given, settings
from hypothesis import strategies as st


def slow_quota(velocity: Any, storage: Any, per_label: int, per_client: int) -> list[list[int]]:
    """The greedy strategy of section 3.3, one step after the other."""
    clients, labels = range(len(velocity)), range(len(velocity[0]))
    has = {c: [y for y in labels if velocity[c][y] > 0] if storage[c] else [] for c in clients}
    mine: dict[int, list[int]] = {c: [] for c in clients}
    owners = {y: [c for c in clients if y in has[c]] for y in labels}
    for y in sorted(labels, key=lambda y: (len(owners[y]), y)):
        given = 0
        for c in sorted(owners[y], key=lambda c: (-velocity[c][y], c)):
            if given < per_label and len(mine[c]) < per_client:
                mine[c].append(y)
                given += 1
    quota = [[0] * len(labels) for _ in clients]
    for c in clients:
        fastest = sorted(mine[c] or has[c], key=lambda y: (-velocity[c][y], y))
        fastest = fastest if mine[c] else fastest[:per_client]
        for place in range(storage[c] if fastest else 0):
            quota[c][fastest[place % len(fastest)]] += 1
    return quota


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_quota_is_that_of_the_greedy_strategy(data: st.DataObject) -> None:
    clients, labels = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 3), min_size=labels, max_size=labels)  # many ties
    velocity = data.draw(st.lists(row, min_size=clients, max_size=clients))
    storage = data.draw(st.lists(st.integers(0, 7), min_size=clients, max_size=clients))
    limits = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    plan = coordinate(velocity, storage, *limits)
    assert plan.quota.tolist() == slow_quota(velocity, storage, *limits)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    quantities=st.sampled_from(["even", "balanced", "proportional", "matched"]),
    cover=st.booleans(),
)
def test_limits_hold_and_storage_is_used(seed: int, quantities: str, cover: bool) -> None:
    rng = np.random.default_rng(seed)
    clients, labels = rng.integers(1, 9), rng.integers(1, 7)
    velocity = rng.random((clients, labels)) * (rng.random((clients, labels)) < 0.6)
    storage, limit = rng.integers(0, 12, clients), int(rng.integers(1, 5))
    plan = coordinate(velocity, storage, 2, limit, quantities=quantities, cover=cover)
    assert (plan.quota >= 0).all()
    assert ((plan.quota > 0).sum(axis=1) <= limit).all()
    assert not plan.quota[velocity == 0].any()
    arriving = velocity.any(axis=1)
    assert plan.quota.sum(axis=1).tolist() == np.where(arriving, storage, 0).tolist()
    assert np.isfinite(plan.class_weights).all()
    stored = plan.quota.sum(axis=0)
    if stored[velocity.any(axis=0)].all():
        # the weights of all that is stored add up to the storage, and give the true distribution
        assert plan.class_weights @ stored == pytest.approx(stored.sum())
        share = plan.class_weights * stored / max(1, stored.sum())
        if stored.sum():
            assert share == pytest.approx(velocity.sum(axis=0) / velocity.sum())


def test_rare_labels_come_first_and_full_clients_are_passed_over() -> None:
    velocity = [[9.0, 9.0, 1.0], [5.0, 4.0, 0.0], [1.0, 3.0, 0.0]]
    plan = coordinate(velocity, [6, 6, 6], clients_per_label=2, labels_per_client=2)
    # label 2 -> client 0; label 0 -> clients 0, 1; label 1: client 0 is full -> clients 1, 2
    assert (plan.quota > 0).tolist() == [
        [True, False, True],
        [True, True, False],
        [False, True, False],
    ]


def test_a_client_left_with_nothing_takes_its_fastest_labels() -> None:
    plan = coordinate([[9.0, 8.0, 7.0], [1.0, 3.0, 2.0]], [3, 5], 1, labels_per_client=2)
    assert plan.quota.tolist() == [[2, 1, 0], [0, 0, 5]]
    plan = coordinate([[9.0, 8.0], [9.0, 8.0], [1.0, 3.0]], [2, 2, 5], 1, labels_per_client=1)
    assert plan.quota.tolist() == [[2, 0], [0, 2], [0, 5]]


def test_fewer_places_than_labels_go_to_the_faster_ones() -> None:
    assert coordinate([[1.0, 2.0, 3.0]], [2]).quota.tolist() == [[0, 1, 1]]
    assert coordinate([[1.0, 2.0, 3.0]], [0]).quota.tolist() == [[0, 0, 0]]


def test_no_label_is_stored_nowhere_if_cover_is_asked_for() -> None:
    velocity = [[9.0, 8.0, 1.0], [9.0, 8.0, 2.0]]
    plain, covered = coordinate(velocity, [2, 2]), coordinate(velocity, [2, 2], cover=True)
    assert plain.quota.tolist() == [[1, 1, 0], [1, 1, 0]]
    assert plain.class_weights[2] == 0
    assert covered.quota.tolist() == [[1, 1, 0], [0, 1, 1]]
    alone = coordinate([[9.0, 8.0, 1.0]], [2], cover=True)  # nothing can be spared
    assert alone.quota.tolist() == [[1, 1, 0]]


def test_matched_quantities_prefer_what_is_fast_within_the_global_distribution() -> None:
    rng = np.random.default_rng(3)
    velocity, storage = rng.dirichlet([0.5] * 5, 40), np.full(40, 10)
    even = coordinate(velocity, storage)
    matched = coordinate(velocity, storage, quantities="matched")
    assert (matched.quota * velocity).sum() > 1.15 * (even.quota * velocity).sum()
    share = matched.quota.sum(axis=0) / 400
    assert share == pytest.approx(velocity.sum(axis=0) / 40, abs=0.03)


@pytest.mark.parametrize("quantities", ["balanced", "proportional", "matched"])
@pytest.mark.parametrize("places", [2, 3, 7])
def test_the_remainder_leaves_no_label_without_holders(places: int, quantities: str) -> None:
    # The same labels are slow everywhere: with the remainder for the faster ones, nobody has them.
    share = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
    velocity, storage = np.tile(10 * share, (20, 1)), np.full(20, places)
    even = coordinate(velocity, storage, 20).quota
    plan = coordinate(velocity, storage, 20, quantities=quantities)
    assert plan.quota.sum(axis=1).tolist() == storage.tolist()
    if places < 5:
        assert not even.sum(axis=0)[-1]
    if places < 5 or quantities != "balanced":
        assert plan.quota.sum(axis=0) / storage.sum() == pytest.approx(share, abs=0.03)
        assert plan.class_weights == pytest.approx(np.ones(5), abs=0.2)
    if quantities == "balanced":
        assert np.ptp(plan.quota, axis=1).max() <= 1  # every client still divides evenly
    # A little faster or slower: most of it stays as it is.
    changed = velocity * np.random.default_rng(0).uniform(0.95, 1.05, velocity.shape)
    loyal = {"held": plan.quota, "loyalty": 0.2}
    after = coordinate(changed, storage, 20, quantities=quantities, **loyal).quota
    moved = np.abs(after - plan.quota).sum() / 2
    assert moved <= (0.1 if quantities == "balanced" else 0.2) * storage.sum()


def test_a_label_stays_where_it_is_held_unless_it_is_much_faster_elsewhere() -> None:
    before = coordinate([[4.0, 1.0], [3.0, 2.0]], [5, 5], 1)
    assert before.quota.tolist() == [[5, 0], [0, 5]]
    near, far = [[3.0, 2.0], [3.2, 1.9]], [[1.0, 2.0], [3.2, 1.0]]
    assert coordinate(near, [5, 5], 1).quota.tolist() == [[0, 5], [5, 0]]
    for velocity, same in ((near, True), (far, False), ([[2.0, 2.0], [2.0, 2.0]], True)):
        after = coordinate(velocity, [5, 5], 1, held=before.quota, loyalty=0.2)
        assert (after.quota.tolist() == before.quota.tolist()) == same
    tie = coordinate([[2.0, 2.0], [2.0, 2.0]], [5, 5], 1, held=[[0, 5], [5, 0]])
    assert tie.quota.tolist() == [[0, 5], [5, 0]]
    with pytest.raises(ValueError, match=r"held: expected shape \(2, 2\)"):
        coordinate(near, [5, 5], 1, held=[[1, 0]])


def test_class_weights_are_those_of_equation_11() -> None:
    velocity = np.array([[8.0, 0.0], [0.0, 2.0]])
    plan = coordinate(velocity, [5, 5])
    assert plan.class_weights.tolist() == [(8 / 10) / (5 / 10), (2 / 10) / (5 / 10)]
    assert class_weights(np.zeros((2, 2)), np.zeros((2, 2))).tolist() == [0, 0]


def test_nobody_and_nothing() -> None:
    assert coordinate(np.zeros((0, 3)), []).quota.shape == (0, 3)
    assert coordinate(np.zeros((2, 0)), [1, 1]).quota.shape == (2, 0)
    assert not coordinate(np.zeros((2, 3)), [5, 5], quantities="matched").quota.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [1]), "velocity: expected one row per client"),
        (([[1.0, -2.0]], [1]), "velocity: expected finite numbers of 0 or more"),
        (([[1.0, np.nan]], [1]), "velocity: expected finite"),
        (([[1.0]], [1, 2]), "storage: expected 1 values"),
        (([[1.0]], [-1]), "storage: expected whole numbers of 0 or more"),
        (([[1.0]], [1.5]), "storage: expected whole numbers"),
        (([[1.0]], [1], 0), "clients_per_label: expected whole numbers of 1 or more"),
        (([[1.0]], [1], 1, 0), "labels_per_client: expected whole numbers of 1 or more"),
        (
            ([[1.0]], [1], 1, 1, "odd"),
            "quantities: expected 'even', 'balanced', 'proportional' or 'matched'",
        ),
    ],
)
def test_what_makes_no_plan_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        coordinate(*arguments)
