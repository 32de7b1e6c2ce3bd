"""Checks of arguments: errors name the argument, the value and what is allowed."""

import math

import numpy as np
import pytest
from forager.selectors.checks import at_least, check_target, finite_rows, one_of, shares


def test_what_is_allowed_passes() -> None:
    at_least(1, parts=1, retry=5)
    shares(decay=0.0, floor=1.0)
    one_of(("a", "b"), rule="b")
    assert finite_rows([[1, 2]]).dtype == np.float64


@pytest.mark.parametrize("value", [0, -3, math.nan])
def test_below_the_bound(value: float) -> None:
    with pytest.raises(ValueError, match=f"parts: expected 1 or more, got {value}"):
        at_least(1, retry=5, parts=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_no_share(value: float) -> None:
    with pytest.raises(ValueError, match=f"floor: expected a share from 0 to 1, got {value}"):
        shares(decay=0.5, floor=value)


def test_none_of_those_allowed() -> None:
    with pytest.raises(ValueError, match="rule: expected one of a, b, got 'c'"):
        one_of(("a", "b"), rule="c")


@pytest.mark.parametrize("rows", [[1.0], [[math.inf]], [[[1.0]]]])
def test_no_matrix_of_finite_numbers(rows: list[object]) -> None:
    with pytest.raises(ValueError, match="points: expected a matrix of finite numbers"):
        finite_rows(rows, "points")


def test_a_target_is_finite_and_like_one_row_of_the_gradients() -> None:
    rows = np.ones((4, 3))
    check_target(rows, np.ones(3))
    for target in (np.ones(4), np.ones((4, 3)), np.float64(1.0)):
        with pytest.raises(ValueError, match="target: expected 3 values as in a row"):
            check_target(rows, target)
    with pytest.raises(ValueError, match="target: expected finite values"):
        check_target(rows, np.array([1.0, np.nan, 1.0]))
    with pytest.raises(ValueError, match="gradients: expected one row per sample"):
        check_target(rows[0], np.ones(3))
