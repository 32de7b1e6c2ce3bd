"""Titan: places of classes, and samples of a class by importance."""

import numpy as np
from forager.selectors.stream_selectors.base import Offered
from forager.selectors.stream_selectors.titan import Titan


def stored(norms, labels, capacity, seed=0):
    rule = Titan(capacity, seed)
    for start in range(0, len(norms), 10):
        part = slice(start, start + 10)
        rule.offer(Offered(np.arange(len(norms))[part], labels[part], gradient_norms=norms[part]))
    return rule


def test_classes_have_places_by_their_number_times_the_length_of_their_gradients() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 2000, p=[0.6, 0.3, 0.1])
    norms = np.array([1.0, 2.0, 12.0])[labels]
    counts = np.bincount(stored(norms, labels, 40).labels, minlength=3)
    np.testing.assert_allclose(counts, [10, 10, 20], atol=2)


def test_within_a_class_long_gradients_are_kept_more_often_but_not_only() -> None:
    norms = np.where(np.arange(200) % 2, 3.0, 1.0)
    labels = np.zeros(200, dtype=np.int64)
    kept = np.concatenate([stored(norms, labels, 10, seed).kept % 2 for seed in range(60)])
    assert 0.65 < kept.mean() < 0.85


def test_new_lengths_change_who_goes_first() -> None:
    rule = stored(np.ones(30), np.zeros(30, dtype=np.int64), 10)
    victims = rule.kept[:5]
    rule.revalue(Offered(victims, np.zeros(5, dtype=np.int64), gradient_norms=np.full(5, 1e-9)))
    rule.offer(
        Offered(np.arange(100, 300), np.zeros(200, dtype=np.int64), gradient_norms=np.ones(200))
    )
    assert not set(victims.tolist()) & set(rule.kept.tolist())


def test_lengths_that_are_told_again_and_again_do_not_pile_up() -> None:
    rule, sizes = stored(np.ones(10), np.zeros(10, dtype=np.int64), 10), []
    for length in range(1, 201):
        rule.revalue(Offered(rule.kept[:1], [0], gradient_norms=np.array([float(length)])))
        sizes += map(len, rule._queues.values())
    assert max(sizes) == 4 * 10 + 17
