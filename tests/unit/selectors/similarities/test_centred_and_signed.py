"""Overlaps that leave out what everybody has, and overlaps with signs."""

import numpy as np
import pytest
from forager.selectors.similarities.index_overlap import centred_overlap_matrix, overlap_matrix
from forager.selectors.similarities.signed_overlap import signed_overlap


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


def test_signs_count_over_common_indices() -> None:
    assert signed_overlap([0, 5], [1, 1], [0, 5], [1, 1]) == 1.0
    assert signed_overlap([0, 5], [1, 1], [5, 8, 9, 10], [-1, 1, 1, 1]) == pytest.approx(
        -1 / 8**0.5
    )
    assert signed_overlap([0], [1], [1], [1]) == 0.0


@pytest.mark.parametrize("signs", [[1], [1, 2], [1, np.nan], [[1, 1]]])
def test_signs_that_do_not_fit_are_refused(signs: list[float]) -> None:
    with pytest.raises(ValueError, match="signs: expected"):
        signed_overlap([0, 1], signs, [0, 1], [1, 1])
