"""Overlaps that leave out what everybody has, and overlaps with signs."""

from typing import Any

import numpy as np
import pytest
from forager.selectors.similarities.index_overlap import centred_overlap_matrix, overlap_matrix
from forager.selectors.similarities.minhash import (
    centred_overlaps_by_signature,
    signed_overlaps_by_signature,
)
from forager.selectors.similarities.signatures import Hashing
from forager.selectors.similarities.signed_overlap import (
    signed_codes,
    signed_overlap_matrix,
    split_codes,
    top_k_changes,
)
from numpy.typing import NDArray


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_cosine_of_centred_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    supports = [np.sort(rng.choice(60, rng.integers(1, 30), replace=False)) for _ in range(9)]
    marks = np.zeros((9, 60))
    for row, support in zip(marks, supports, strict=True):
        row[support] = 1
    rows = marks - marks.mean(axis=0)
    lengths = np.linalg.norm(rows, axis=1)
    expected = rows @ rows.T / np.outer(lengths, lengths)
    np.testing.assert_allclose(centred_overlap_matrix(supports), expected, atol=1e-9)


def test_what_everybody_has_makes_nobody_alike() -> None:
    common = list(range(50))
    supports = [[*common, 60], [*common, 60], [*common, 61], [*common, 62]]
    assert overlap_matrix(supports)[0, 2] > 0.9
    centred = centred_overlap_matrix(supports)
    assert centred[0, 1] == pytest.approx(1.0)
    assert centred[0, 2] < 0


def test_the_average_is_like_nobody_and_one_or_no_client_is_fine() -> None:
    assert centred_overlap_matrix([[1, 2], [1, 2]]).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert centred_overlap_matrix([[3]]).tolist() == [[1.0]]
    assert centred_overlap_matrix([]).shape == (0, 0)


def signed_overlap(a: Any, signs_a: Any, b: Any, signs_b: Any) -> float:
    """The sum of sign products over common indices, over the root of both sizes."""
    first, second = dict(zip(a, signs_a, strict=True)), dict(zip(b, signs_b, strict=True))
    common = sum(int(first[index]) * int(second[index]) for index in first.keys() & second.keys())
    return float(common / np.sqrt(len(first) * len(second)))


def test_signs_count_over_common_indices() -> None:
    assert signed_overlap([0, 5], [1, 1], [0, 5], [1, 1]) == 1.0
    assert signed_overlap([0, 5], [1, 1], [5, 8, 9, 10], [-1, 1, 1, 1]) == pytest.approx(
        -1 / 8**0.5
    )
    assert signed_overlap([0], [1], [1], [1]) == 0.0


@pytest.mark.parametrize("signs", [[1], [1, 2], [1, np.nan], [[1, 1]]])
def test_signs_that_do_not_fit_are_refused(signs: list[float]) -> None:
    with pytest.raises(ValueError, match="signs: expected"):
        signed_codes([0, 1], signs)


def changes(rng: np.random.Generator, size: int = 60) -> NDArray[np.int64]:
    indices = np.sort(rng.choice(size, rng.integers(1, 30), replace=False))
    return signed_codes(indices, rng.choice([-1, 1], indices.size))


@pytest.mark.parametrize("seed", range(5))
def test_all_pairs_are_as_each_pair(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [changes(rng) for _ in range(8)]
    expected = [
        [signed_overlap(*split_codes(a), *split_codes(b)) for b in clients] for a in clients
    ]
    np.testing.assert_allclose(signed_overlap_matrix(clients), expected, atol=1e-12)


def test_the_largest_changes_are_taken_with_their_signs() -> None:
    codes = top_k_changes([0.5, -2.0, 0.0, 1.0, -1.0], k=3)
    indices, signs = split_codes(codes)
    assert indices.tolist() == [1, 3, 4]
    assert signs.tolist() == [-1, 1, -1]
    few = top_k_changes([0.0, -2.0, 0.0], k=3)  # what did not change is not sent
    assert split_codes(few)[0].tolist() == [1]
    by_layer = top_k_changes([9.0, 8.0, -0.1, 0.2], k=2, layers=[2, 2])
    assert split_codes(by_layer)[0].tolist() == [0, 3]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([4, 5], "one sign per index"), ([], "one or more"), ([3, 3], "no index twice")],
)
def test_codes_that_make_no_sense_are_refused(codes: list[int], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        signed_overlap_matrix([codes])
    with pytest.raises(ValueError, match=expected):
        Hashing(4).sign_changes(codes)


@pytest.mark.parametrize("signs", [[1], [1, 0], [1, 2]])
def test_a_code_needs_a_direction(signs: list[int]) -> None:
    with pytest.raises(ValueError, match="signs: expected -1, 1 for each of 2"):
        signed_codes([0, 1], signs)


def test_signatures_of_changes_estimate_the_signed_overlap() -> None:
    rng, hashing = np.random.default_rng(0), Hashing(2048)
    base = np.sort(rng.choice(20_000, 900, replace=False))
    clients = []
    for turned in (0, 100, 450, 900):
        signs = np.ones(base.size, dtype=np.int64)
        signs[:turned] = -1
        clients.append(signed_codes(base, signs))
    clients.append(signed_codes(base[:400], np.ones(400)))  # fewer, all alike
    signatures = np.array([hashing.sign_changes(codes) for codes in clients])
    counts = [codes.size for codes in clients]
    exact = signed_overlap_matrix(clients)
    estimate = signed_overlaps_by_signature(signatures, counts)
    assert exact[0].round(3).tolist() == [1.0, 0.778, 0.0, -1.0, 0.667]
    np.testing.assert_allclose(estimate, exact, atol=0.08)
    held = {0: clients[0], 2: clients[2]}
    mixed = signed_overlaps_by_signature(signatures, counts, held)
    assert mixed[0, 2] == exact[0, 2]
    assert mixed[0, 1] == estimate[0, 1]


def test_the_lowest_bits_of_a_signature_say_what_grew() -> None:
    grew, fell = (Hashing(16).sign_changes(signed_codes([3], [way])) for way in (1, -1))
    assert (grew & 1).tolist() == [1] * 16
    assert (grew - fell).tolist() == [1] * 16


def test_signatures_estimate_the_centred_overlap() -> None:
    rng, hashing = np.random.default_rng(1), Hashing(2048)
    common = np.arange(400)  # matters to everyone
    own = [np.arange(1000 + 500 * group, 1300 + 500 * group) for group in (0, 1)]
    supports = [np.union1d(common, rng.choice(own[i % 2], 250, replace=False)) for i in range(8)]
    signatures, counts = [hashing.sign(s) for s in supports], [s.size for s in supports]
    exact = centred_overlap_matrix(supports)
    estimate = centred_overlaps_by_signature(signatures, counts)
    np.testing.assert_allclose(estimate, exact, atol=0.15)
    held = dict(enumerate(supports))
    np.testing.assert_allclose(
        centred_overlaps_by_signature(signatures, counts, held), exact, atol=1e-9
    )


def test_signs_need_hash_functions_of_their_own() -> None:
    with pytest.raises(ValueError, match="'independent' for signs, got 'one-permutation'"):
        Hashing(4, scheme="one-permutation").sign_changes([2, 5])
