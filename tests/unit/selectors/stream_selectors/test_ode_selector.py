from collections import Counter

import numpy as np
import pytest
from forager.selectors.stream_selectors.base import Offered
from forager.selectors.stream_selectors.ode import OdeSelector, coordinate

RNG = np.random.default_rng(0)


def stream(count: int, labels: int, start: int = 0) -> Offered:
    keys = np.arange(start, start + count)
    return Offered(keys, RNG.integers(0, labels, count), values=RNG.normal(size=count))


def test_each_label_has_its_most_valuable() -> None:
    rule, batch = OdeSelector(6, quota=[3, 0, 2, 1]), stream(200, 5)
    for part in np.split(np.arange(200), 8):
        rule.offer(Offered(batch.keys[part], batch.labels[part], values=batch.values[part]))
    for label, places in enumerate([3, 0, 2, 1, 0]):
        mine = np.flatnonzero(batch.labels == label)
        best = mine[np.argsort(-batch.values[mine])[:places]]
        assert sorted(rule.kept[rule.labels == label]) == sorted(best)
    assert rule.values.tolist() == batch.values[rule.kept].tolist()


def test_labels_that_were_never_heard_of_are_not_stored() -> None:
    rule = OdeSelector(4, quota=[4])
    assert rule.offer(Offered([1, 2, 3], [7, -1, 0], values=[9.0, 9.0, -9.0])).kept.tolist() == [2]


def test_without_a_plan_labels_share_the_capacity() -> None:
    rule = OdeSelector(2)
    rule.offer(Offered([1, 2, 3], [7, 0, 7], values=[3.0, 1.0, 2.0]))
    assert rule.kept.tolist() == [1, 3]
    assert rule.quota == {}


def test_values_that_are_no_numbers_are_never_stored_and_never_taken_over() -> None:
    rule = OdeSelector(3, quota=[3])
    rule.offer(Offered([1, 2, 3, 4], [0] * 4, values=[np.nan, np.inf, -np.inf, 1.0]))
    assert rule.kept.tolist() == [4]
    rule.revalue(Offered([4], [0], values=[np.nan]))
    assert rule.values.tolist() == [1.0]


def test_new_values_change_who_goes_first() -> None:
    rule = OdeSelector(2, quota=[2])
    rule.offer(Offered([1, 2], [0, 0], values=[5.0, 1.0]))
    rule.revalue(Offered([1, 2, 99], [0, 0, 0], values=[0.0, 4.0, 9.0]))
    assert 99 not in rule
    assert rule.offer(Offered([3], [0], values=[0.0])).evicted.tolist() == [1]  # ties: newer wins


def test_while_there_are_no_values_each_label_is_sampled_uniformly() -> None:
    times: Counter[int] = Counter()
    keys = np.arange(20)
    for seed in range(800):
        rule = OdeSelector(4, seed, quota=[3, 1])
        for part in (keys[:8], keys[8:]):
            rule.offer(Offered(part, part % 2))
        assert rule.labels.tolist().count(0) == 3
        times.update(rule.kept.tolist())
    assert all(abs(times[key] - 240) < 60 for key in range(0, 20, 2))  # deviation 13
    assert all(abs(times[key] - 80) < 40 for key in range(1, 20, 2))  # deviation 8.5


def test_a_lot_never_outranks_a_value() -> None:
    rule = OdeSelector(2, quota=[2])
    rule.offer(Offered([1, 2], [0, 0]))
    assert np.isnan(rule.values).all()
    decision = rule.offer(Offered([3, 4], [0, 0], values=[-7.0, -8.0]))
    assert decision.evicted.tolist() == [1, 2]
    rule.offer(Offered([5], [0]))  # the server has lost its estimate: lots again
    assert np.isnan(rule.values).all()


def test_what_was_drawn_keeps_its_place_by_its_value_once_there_are_values() -> None:
    rule = OdeSelector(2, quota=[2])
    rule.offer(Offered([1, 2], [0, 0]))
    rule.revalue(Offered([1, 2], [0, 0], values=[0.5, -3.0]))
    assert rule.offer(Offered([3], [0], values=[-1.0])).evicted.tolist() == [2]


def test_another_plan_lets_the_least_valuable_go() -> None:
    rule = OdeSelector(4, quota=[2, 2])
    rule.offer(Offered([1, 2, 3, 4], [0, 0, 1, 1], values=[1.0, 2.0, 3.0, 4.0]))
    assert rule.assign([1, 0, 3]).tolist() == [1, 3, 4]
    assert (rule.kept.tolist(), rule.values.tolist(), rule.quota) == ([2], [2.0], {0: 1, 2: 3})
    assert rule.assign(None).tolist() == []
    assert rule.offer(Offered([5], [1], values=[0.0])).kept.tolist() == [0]


def test_rows_of_a_plan_fill_up_to_weights_that_add_up_to_the_storage() -> None:
    velocity = RNG.random((6, 4)) * (RNG.random((6, 4)) < 0.7)
    velocity[0] = 1.0
    plan = coordinate(velocity, [5] * 6, 2, cover=True)
    total = 0.0
    for row in plan.quota:
        rule = OdeSelector(5, quota=row)
        rule.offer(stream(300, 4))
        total += plan.class_weights[rule.labels].sum()
    assert total == pytest.approx(30 if velocity.any(axis=1).all() else plan.quota.sum())


def test_a_smaller_capacity_after_a_restart_lets_the_least_valuable_go() -> None:
    rule = OdeSelector(4, quota=[4])
    rule.offer(Offered([1, 2, 3, 4], [0] * 4, values=[4.0, 1.0, 3.0, 2.0]))
    smaller = OdeSelector(2)
    smaller.load_state_dict(rule.state_dict())
    assert smaller.kept.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("quota", "message"),
    [
        ([3, 3], "quota: 6 places, but the capacity is 5"),
        ([-1], "quota: expected whole numbers of 0 or more"),
        ([0.5], "quota: expected whole numbers of 0 or more"),
        (3, "quota: expected whole numbers of 0 or more"),
    ],
)
def test_plans_that_cannot_be_followed_are_refused(quota: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OdeSelector(5, quota=quota)


def test_the_same_plan_again_changes_nothing() -> None:
    rule = OdeSelector(capacity=4, quota=[2, 2])
    rule.offer(Offered([1, 2, 3, 4], [0, 0, 1, 1], values=[0.1, 0.2, 0.3, 0.4]))
    before = rule.state_dict()
    assert rule.assign([2, 2]).tolist() == []
    np.testing.assert_equal(rule.state_dict(), before)
    assert rule.assign([2, 1]).tolist() == [3]


@pytest.mark.parametrize("quota", [None, [3, 0, 2, 1]])
def test_saving_between_contacts_changes_no_decision(quota: list[int] | None) -> None:
    """Also where there are first no values, then some, then none again."""
    rng = np.random.default_rng(0)
    rule = OdeSelector(6, seed=5, quota=quota)
    for contact in range(40):
        values = rng.integers(0, 5, 3).astype(float) if contact % 13 > 4 else None
        batch = Offered(np.arange(3) + 3 * contact, rng.integers(0, 4, 3), values=values)
        other = OdeSelector(6)
        other.load_state_dict(rule.state_dict())
        mine, its = rule.offer(batch), other.offer(batch)
        np.testing.assert_equal((mine.kept, mine.evicted), (its.kept, its.evicted))
        np.testing.assert_equal(rule.state_dict(), other.state_dict())
