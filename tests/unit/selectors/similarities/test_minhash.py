import numpy as np
import pytest
from forager.selectors.similarities.index_overlap import overlap, overlap_matrix
from forager.selectors.similarities.minhash import (
    MinHashIndex,
    overlap_from_jaccard,
    overlaps_by_signature,
)
from forager.selectors.similarities.signatures import SCHEMES, Hashing
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def pair_with_jaccard_one_third(size: int, spread: int) -> tuple[Indices, Indices]:
    return np.arange(2 * size) * spread, np.arange(size, 3 * size) * spread


def clustered_supports(seed: int, clusters: int = 10, members: int = 10) -> list[Indices]:
    rng = np.random.default_rng(seed)
    supports = []
    for _ in range(clusters):
        core = rng.choice(20_000, 800, replace=False)
        for _ in range(members):
            kept = rng.choice(core, 600, replace=False)
            supports.append(np.union1d(kept, rng.choice(20_000, 200, replace=False)))
    return supports


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("size", "spread"), [(1000, 1), (1000, 64), (20, 1)])
def test_estimates_are_unbiased_with_the_variance_of_lemma_e1(
    scheme: str, size: int, spread: int
) -> None:
    a, b = pair_with_jaccard_one_third(size, spread)
    hashes, repeats, true = 64, 200, 1 / 3
    estimates = []
    for seed in range(repeats):
        hashing = Hashing(hashes, seed, scheme)
        estimates.append(np.mean(hashing.sign(a) == hashing.sign(b)))
    deviation = np.sqrt(true * (1 - true) / hashes)
    assert abs(np.mean(estimates) - true) < 4 * deviation / np.sqrt(repeats)
    # Bins that had to be filled (20 indices or so in 64 bins) cost some accuracy.
    assert np.std(estimates) < deviation * (1.2 if size > hashes else 1.5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_signatures_are_of_the_set_and_repeat(scheme: str) -> None:
    support = np.random.default_rng(0).choice(10**6, 10_000, replace=False)
    signature = Hashing(96, 5, scheme).sign(support)
    assert signature.dtype == np.uint32
    assert signature.shape == (96,)
    np.testing.assert_array_equal(Hashing(96, 5, scheme).sign(np.sort(support)), signature)
    assert (Hashing(96, 6, scheme).sign(support) != signature).all()


def test_each_index_is_as_likely_to_be_the_least() -> None:
    hashing = Hashing(20_000, seed=3)
    alone = np.array([hashing.sign([index]) for index in range(10)])
    wins = (alone == hashing.sign(range(10))).sum(axis=1)
    assert wins.sum() == 20_000
    assert np.abs(wins - 2000).max() < 5 * np.sqrt(20_000 * 0.1 * 0.9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bands_retrieve_as_often_as_lemma_e2_says(scheme: str) -> None:
    a, b = pair_with_jaccard_one_third(300, 7)
    found = 0
    for seed in range(300):
        index = MinHashIndex(32, 16, seed, scheme)
        index.add("a", a)
        found += index.query(b) == ["a"]
    expected = 300 * (1 - (1 - (1 / 3) ** (32 / 16)) ** 16)  # lemma E.2: 1 - (1 - J^(h/b))^b
    assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected / 300))


def test_candidates_hold_the_neighbours_and_few_others() -> None:
    supports = clustered_supports(0)
    index = MinHashIndex(hashes=128, bands=64, seed=1)
    for key, support in enumerate(supports):
        index.add(key, support)
    pairs = set(index.candidate_pairs())
    same = {(i, j) for i in range(100) for j in range(i + 1, 100) if i // 10 == j // 10}
    assert len(pairs & same) >= 0.95 * len(same)
    assert len(pairs) < 0.2 * 100 * 99 / 2
    assert all(key in index.query(supports[key]) for key in range(100))
    assert pairs == {(i, j) for i in range(100) for j in index.query(supports[i]) if i < j}


def test_jaccard_takes_keys_and_supports() -> None:
    supports = clustered_supports(1, clusters=2, members=3)
    index = MinHashIndex(hashes=256, bands=64, seed=0)
    for key, support in enumerate(supports):
        index.add(f"client {key}", support)
    found = index.jaccard("client 0", "client 1")
    assert found == index.jaccard(supports[0], supports[1])
    assert abs(overlap_from_jaccard(found) - overlap(supports[0], supports[1])) < 0.1
    with pytest.raises(KeyError, match="nobody"):
        index.jaccard("client 0", "nobody")


def test_overlap_from_jaccard_is_exact_for_any_sizes() -> None:
    a, b = np.arange(0, 400), np.arange(300, 400)
    jaccard = 100 / 400
    assert overlap_from_jaccard(jaccard, sizes=(400, 100)) == pytest.approx(overlap(a, b))
    assert overlap_from_jaccard(1 / 3) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="jaccard"):
        overlap_from_jaccard(1.5)


def test_a_key_added_again_is_replaced_and_a_removed_one_is_gone() -> None:
    index = MinHashIndex(64, 16, seed=0)
    index.add("a", range(100))
    index.add("a", range(1000, 1100))
    assert index.query(range(100)) == []
    assert index.query(range(1000, 1100)) == ["a"]
    index.remove("a")
    assert (len(index), index.query(range(1000, 1100)), index.candidate_pairs()) == (0, [], [])
    assert not any(index._tables)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="bands"):
        MinHashIndex(100, 33)
    with pytest.raises(ValueError, match="scheme"):
        MinHashIndex(64, 16, scheme="two")
    with pytest.raises(ValueError, match="hashes"):
        Hashing(0)
    with pytest.raises(ValueError, match="below"):
        Hashing(8).sign([2**32])
    with pytest.raises(ValueError, match="support: expected"):
        MinHashIndex(64, 16).add("a", [])
    with pytest.raises(ValueError, match="signature"):
        MinHashIndex(64, 16).add_signature("a", np.zeros(32, dtype=np.uint32))


def test_overlaps_are_estimated_for_supports_of_any_size() -> None:
    supports = [np.arange(400), np.arange(300, 400), np.arange(200, 600)]
    hashing = Hashing(2048, seed=0)
    estimates = overlaps_by_signature(
        [hashing.sign(s) for s in supports], [s.size for s in supports]
    )
    exact = overlap_matrix(supports)
    np.testing.assert_allclose(estimates, exact, atol=0.06)
    assert estimates.max() <= 1
