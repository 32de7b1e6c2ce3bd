from fractions import Fraction

import numpy as np
import pytest
from forager.selectors.data_selectors.budgets import (
    budget_count,
    class_budgets,
    split_budget,
    split_equally,
)
from hypothesis import given
from hypothesis import strategies as st

counts_of_classes = st.lists(st.integers(0, 60), max_size=9)


@given(counts=counts_of_classes, budget=st.integers(0, 300))
def test_parts_are_exact_proportional_and_possible(counts: list[int], budget: int) -> None:
    parts = split_budget(counts, budget).tolist()
    total = min(budget, sum(counts))
    assert sum(parts) == total
    assert all(0 <= part <= count for part, count in zip(parts, counts, strict=True))
    if sum(counts):
        shares = [Fraction(total * count, sum(counts)) for count in counts]
        assert all(abs(part - share) < 1 for part, share in zip(parts, shares, strict=True))
        up = [share - int(share) for part, share in zip(parts, shares, strict=True) if part > share]
        down = [
            share - int(share) for part, share in zip(parts, shares, strict=True) if part < share
        ]
        assert not up or not down or min(up) >= max(down)


def test_known_splits() -> None:
    assert split_budget([33, 33, 34], 10).tolist() == [3, 3, 4]
    assert split_budget([5, 5, 5], 4).tolist() == [2, 1, 1]  # ties go to the lower class
    assert split_budget([1, 1, 98], 10).tolist() == [0, 0, 10]
    assert split_budget([], 3).tolist() == []
    assert split_budget([0, 0], 3).tolist() == [0, 0]


@given(counts=counts_of_classes, budget=st.integers(0, 300))
def test_small_classes_only_get_what_the_others_cannot_use(counts: list[int], budget: int) -> None:
    parts = class_budgets(counts, budget).tolist()
    large = sum(count for count in counts if count >= 3)
    assert sum(parts) == min(budget, sum(counts))
    assert all(part <= count for part, count in zip(parts, counts, strict=True))
    given_away = sum(part for part, count in zip(parts, counts, strict=True) if count < 3)
    assert given_away == max(0, sum(parts) - large)


def test_a_budget_is_a_share_or_a_count() -> None:
    assert [budget_count(b, 1000) for b in (0, 0.0, 0.1, 0.9999, 1, 1.0, 50, 2000)] == [
        0,
        0,
        100,
        1000,
        1,
        1,
        50,
        1000,
    ]
    assert budget_count(0.1, 3) == 1
    assert budget_count(0.1, 0) == budget_count(7, 0) == 0


@pytest.mark.parametrize("budget", [-1, -0.1, 2.5, float("nan"), float("inf")])
def test_other_budgets_are_refused(budget: float) -> None:
    with pytest.raises(ValueError, match="budget: expected a share from 0 to below 1 or a number"):
        budget_count(budget, 10)


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="counts: expected 0 or more, got -2"):
        split_budget([3, -2], 1)
    with pytest.raises(ValueError, match="counts: expected whole numbers, one per class"):
        split_budget([0.5, 2.5], 1)
    with pytest.raises(ValueError, match="budget: expected 0 or more, got -1"):
        split_budget([3], -1)


@given(counts=st.lists(st.integers(0, 30), max_size=8), budget=st.integers(0, 200))
def test_equal_parts_add_up_and_differ_by_one_at_most_where_there_are_samples(
    counts: list[int], budget: int
) -> None:
    parts = split_equally(np.array(counts, dtype=int), budget)
    assert parts.sum() == min(budget, sum(counts))
    assert (parts <= counts).all()
    unfilled = [part for part, count in zip(parts, counts, strict=True) if part < count]
    if unfilled:
        assert parts.max() - min(unfilled) <= 1


def test_classes_of_too_few_leave_their_equal_part_to_the_others() -> None:
    assert class_budgets([2, 50, 10], 10, equal=True).tolist() == [0, 5, 5]
    assert class_budgets([2, 4, 3], 8, equal=True).tolist() == [1, 4, 3]
