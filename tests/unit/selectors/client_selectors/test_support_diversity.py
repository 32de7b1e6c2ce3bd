"""Clients that are spread out by their signatures."""

import numpy as np
from forager.selectors.client_selectors.support_diversity import spread_out
from forager.selectors.similarities.signatures import Hashing


def signed(groups: list[int], common: int = 0, seed: int = 0) -> np.ndarray:
    """Signatures of clients of some groups, with many indices that all have in common."""
    rng, hashing = np.random.default_rng(seed), Hashing(128)
    everyone = np.arange(common)
    own = {g: 10_000 * (g + 1) + np.arange(120) for g in groups}
    supports = [
        np.union1d(everyone, rng.choice(own[group], 100, replace=False)) for group in groups
    ]
    return np.array([hashing.sign(support) for support in supports], dtype=np.float64)


def test_each_comes_from_another_group_while_there_are_some() -> None:
    groups = [0, 0, 0, 1, 1, 2, 2, 3]
    chosen = spread_out(signed(groups), np.zeros(8), 4)
    assert sorted(groups[i] for i in chosen) == [0, 1, 2, 3]


def test_what_everyone_has_in_common_does_not_hide_the_groups() -> None:
    groups = [0, 1, 2, 3] * 5
    chosen = spread_out(signed(groups, common=300), np.zeros(20), 4)
    assert sorted(groups[i] for i in chosen) == [0, 1, 2, 3]


def test_who_has_sent_nothing_is_like_nobody_and_comes_soon() -> None:
    signatures = signed([0, 0, 0, 1, 0])
    signatures[4] = np.nan
    assert set(spread_out(signatures, [5, 0, 0, 0, 0], 3).tolist()) == {0, 3, 4}
    assert spread_out(signatures, [0, 0, 0, 0, 9], 2).tolist() == [4, 0]
    nobody = np.full((3, 4), np.nan)
    assert spread_out(nobody, [0, 2, 1], 3).tolist() == [1, 2, 0]


def test_identical_clients_are_taken_by_age() -> None:
    signatures = np.tile([1.0, 2.0], (4, 1))
    assert spread_out(signatures, [0, 3, 1, 2], 3).tolist() == [1, 3, 2]
    assert spread_out(signatures, [0, 3, 1, 2], 9).tolist() == [1, 3, 2, 0]
    assert spread_out(signatures[:0], [], 3).tolist() == []


def test_the_similarity_is_the_cosine_of_what_differs_from_the_average() -> None:
    """Against the vectors that mark which value stands at which place."""
    rng = np.random.default_rng(0)
    signatures = rng.choice(4, p=[0.7, 0.1, 0.1, 0.1], size=(14, 9)).astype(float)
    signatures[:5] = np.where(
        rng.random((5, 9)) < 0.8, 0.0, signatures[:5]
    )  # hardly differ from it
    marks = (signatures[:, :, None] == np.arange(4)).reshape(14, -1).astype(float)
    marks -= marks.mean(axis=0)
    marks /= np.linalg.norm(marks, axis=1, keepdims=True)
    cosines, expected = marks @ marks.T, [0]
    while len(expected) < 14:
        nearest = cosines[:, expected].max(axis=1)
        nearest[expected] = np.inf
        expected.append(int(nearest.argmin()))
    assert spread_out(signatures, np.zeros(14), 14).tolist() == expected
