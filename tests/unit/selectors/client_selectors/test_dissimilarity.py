from collections import Counter

import numpy as np
import pytest
from forager.selectors.client_selectors.base import Candidates
from forager.selectors.client_selectors.dissimilarity import (
    DissimilaritySampling,
    MostDissimilar,
    MostDissimilarAfterCooldown,
    sampling_probabilities,
)


def crowd(similarity: list[float], age: list[int] | None = None) -> Candidates:
    size = len(similarity)
    age = age or [0] * size
    observations = {"similarity": similarity, "age": age, "participated": [True] * size}
    keys = [str(i) for i in range(size)]
    return Candidates(keys, {name: np.array(v) for name, v in observations.items()})


def test_the_most_dissimilar_have_the_lowest_similarity() -> None:
    def chosen(similarity: list[float], count: int) -> list[int]:
        return MostDissimilar().select(crowd(similarity), count, np.random.default_rng(0)).tolist()

    assert chosen([0.5, -0.9, 0.0, -0.7], 3) == [1, 3, 2]
    assert chosen([0.5, np.nan], 2) == [0]
    assert chosen([], 2) == []


def test_the_selector_breaks_ties_at_random() -> None:
    chosen = {
        int(MostDissimilar().select(crowd([0.0] * 4), 1, np.random.default_rng(s))[0])
        for s in range(30)
    }
    assert chosen == {0, 1, 2, 3}


def test_the_cooldown_keeps_the_older_half() -> None:
    selector, rng = MostDissimilarAfterCooldown(), np.random.default_rng(0)
    candidates = crowd([-1.0, -0.8, 0.5, 0.1, 0.2], age=[0, 0, 3, 4, 5])
    asked = selector.shortlist(candidates, 2, rng)
    assert asked.tolist() == [2, 3, 4]
    assert asked[selector.select(candidates.take(asked), 2, rng)].tolist() == [3, 4]
    assert len(selector.shortlist(candidates, 4, rng)) == 4


def test_probabilities_by_hand() -> None:
    # dissimilarities above the smallest: 0, 0.5, 1.5
    assert sampling_probabilities([1.0, 0.5, -0.5]) == pytest.approx([0, 0.25, 0.75])
    assert sampling_probabilities([0.3, 0.3]) == pytest.approx([0.5, 0.5])
    assert sampling_probabilities([7.0]) == pytest.approx([1.0])
    assert sampling_probabilities([]).tolist() == []


def test_the_unknown_have_no_probability() -> None:
    assert sampling_probabilities([np.nan, 0.2, 0.2]) == pytest.approx([0, 0.5, 0.5])
    assert sampling_probabilities([np.nan, np.inf]).tolist() == [0, 0]


def test_sampling_follows_the_probabilities() -> None:
    rng, candidates = np.random.default_rng(1), crowd([1.0, 0.5, -0.5])
    hits = Counter(int(DissimilaritySampling().select(candidates, 1, rng)[0]) for _ in range(4000))
    assert hits[0] == 0
    assert abs(hits[2] - 3000) < 120


def test_sampling_fills_up_by_position() -> None:
    rng = np.random.default_rng(1)
    candidates = crowd([0.9, np.nan, 0.9, 0.1, 0.9])
    assert DissimilaritySampling().select(candidates, 3, rng).tolist() == [3, 0, 2]
    assert DissimilaritySampling().select(candidates, 9, rng).tolist() == [3, 0, 2, 4]
