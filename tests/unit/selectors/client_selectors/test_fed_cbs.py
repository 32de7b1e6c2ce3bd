"""Fed-CBS: pooled classes are balanced, and nobody is forgotten."""

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.fed_cbs import FedCbs, imbalance


def by_definition(counts):
    pooled = np.asarray(counts, dtype=float).sum(axis=0)
    return float(((pooled / pooled.sum() - 1 / len(pooled)) ** 2).sum())


def test_the_imbalance_is_the_papers() -> None:
    rng = np.random.default_rng(0)
    counts, others = rng.integers(0, 9, (6, 5)), rng.integers(1, 9, (3, 5))
    expected = [by_definition([row, *others]) for row in counts]
    np.testing.assert_allclose(imbalance(others.sum(axis=0), counts), expected, atol=1e-12)


def test_sets_are_more_balanced_than_random_ones_and_everybody_gets_a_turn() -> None:
    rng = np.random.default_rng(0)
    counts = np.array([rng.multinomial(30, p) for p in rng.dirichlet([0.1] * 10, 40)])
    candidates = Candidates([str(i) for i in range(40)], {"histogram": counts})
    rule = FedCbs()
    chosen = [rule.select(candidates, 10, rng) for _ in range(100)]
    drawn = [rng.permutation(40)[:10] for _ in range(100)]
    means = [np.mean([by_definition(counts[each]) for each in sets]) for sets in (chosen, drawn)]
    assert means[0] < 0.5 * means[1]
    assert len({int(i) for each in chosen for i in each}) == 40


def test_a_negative_exploration_is_refused() -> None:
    with pytest.raises(ValueError, match="exploration"):
        FedCbs(exploration=-1)


def test_one_sample_is_as_imbalanced_as_can_be_and_none_counts_so_too() -> None:
    assert imbalance([0, 0], [[1, 0], [2, 2], [0, 0]]).tolist() == [0.5, 0.0, 1.0]


def test_without_exploration_the_first_client_is_a_balanced_one_and_its_turns_are_counted() -> None:
    rng, counts = np.random.default_rng(0), np.array([[20, 0], [10, 10], [0, 20]])
    rule = FedCbs(exploration=0.0)
    for turn in (1, 2, 3):
        chosen = rule.select(Candidates(list("abc"), {"histogram": counts}), 1, rng)
        assert chosen.tolist() == [1]
        assert rule.state_dict()["times"] == {"b": turn}
