"""The number of samples in a coreset, and in each of its classes."""

import math
from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least

Counts = NDArray[np.int64]

TOO_FEW = 3  # samples of a class that say nothing about its gradients


def budget_count(budget: float, size: int) -> int:
    """Return how many of ``size`` samples a budget allows.

    - ``budget``: a share if below 1 (rounded, but at least one sample), a whole number of samples
      otherwise.
    - ``size``: how many samples there are.
    """
    if not 0 <= budget < math.inf or (budget >= 1 and budget != int(budget)):
        raise ValueError(
            f"budget: expected a share from 0 to below 1 or a number of samples, got {budget!r}"
        )
    if budget >= 1 or budget == 0:
        return min(int(budget), size)
    return min(max(1, round(budget * size)), size)


def split_budget(counts: ArrayLike, budget: int) -> Counts:
    """Return each class's part of a budget, in proportion to its size, by largest remainder.

    The parts add up to the budget exactly, or to all samples if there are fewer. None exceeds its
    class. Equal remainders go to the lower class.

    - ``counts``: samples of each class.
    - ``budget``: samples in total.

    >>> split_budget([33, 33, 34], 10).tolist()
    [3, 3, 4]
    >>> split_budget([1, 0, 2], 10).tolist()
    [1, 0, 2]
    """
    sizes = _checked_counts(counts)
    at_least(0, budget=index(budget))
    total = int(sizes.sum())
    if budget >= total:
        return sizes.copy()
    parts, remainders = np.divmod(sizes * index(budget), total)
    left = index(budget) - int(parts.sum())
    parts[np.argsort(-remainders, kind="stable")[:left]] += 1
    return parts


def split_equally(counts: ArrayLike, budget: int) -> Counts:
    """Return each class's part of a budget, the same for all (b / |Y|, section 5.2 of GCFL).

    Places that a class cannot fill go to the others, again in equal parts. A remainder goes to the
    lower classes. The parts add up as those of :func:`split_budget` do.
    """
    sizes = _checked_counts(counts)
    at_least(0, budget=index(budget))
    parts, left = np.zeros_like(sizes), min(index(budget), int(sizes.sum()))
    while left:
        open_classes = np.flatnonzero(parts < sizes)
        share = max(1, left // len(open_classes))
        given = np.minimum(sizes[open_classes] - parts[open_classes], share)
        given[left:] = 0  # fewer samples than classes: one each for the lower ones
        parts[open_classes] += given
        left -= int(given.sum())
    return parts


def class_budgets(counts: ArrayLike, budget: int, equal: bool = False) -> Counts:
    """Return each class's part of a budget, without the classes of too few samples.

    Their part goes to the others. They get only what the others cannot use. Parts are in proportion
    to the classes' sizes, or ``equal``.
    """
    sizes = _checked_counts(counts)
    split = split_equally if equal else split_budget
    large = np.where(sizes < TOO_FEW, 0, sizes)
    parts = split(large, budget)
    left = index(budget) - int(parts.sum())
    return parts + split(sizes - large, left) if left else parts


def _checked_counts(counts: ArrayLike) -> Counts:
    sizes = np.asarray(counts)
    if sizes.ndim != 1 or (sizes.size and sizes.dtype.kind not in "iu"):
        raise ValueError(f"counts: expected whole numbers, one per class, got {counts!r}")
    if (sizes < 0).any():
        raise ValueError(f"counts: expected 0 or more, got {sizes.min()}")
    return sizes.astype(np.int64)
