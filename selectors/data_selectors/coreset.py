"""A client's coreset: which of its samples it trains on, chosen class by class.

Samples are grouped by their label, which may be wrong, and each group gets its part of the budget
(*Gradient Coreset for Federated Learning*, section 5.2; parts are proportional to the groups unless
equal ones are requested). For one group of all samples, set all labels to zero.
"""

from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import at_least, one_of
from .budgets import class_budgets
from .crust import crust, neighbour_counts
from .facility_location import cluster_sizes, facility_location
from .matching_pursuit import matching_pursuit
from .plain import nearest, uniform

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

RULES = ("full", "random", "facility-location", "crust", "projection", "distance", "nearest")


@dataclass(frozen=True)
class ChosenSamples:
    """Samples to train on."""

    indices: Positions  # ascending; none twice
    # How much each counts in training: not negative, and one on average over those of a class, so
    # that weights change what counts within a class but not how much a class counts
    weights: Floats

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class RuleSettings:
    """Options of the rules."""

    # Of :func:`selectors.data_selectors.matching_pursuit.matching_pursuit`, for ``distance`` and
    # ``projection``. The weights of ``projection`` are never negative.
    ridge: float = 0.5
    tolerance: float = 1e-4
    nonnegative: bool = False
    residual: str = "mean"
    radius: float = 2.0  # of :func:`forager.selectors.data_selectors.crust.crust`
    # Whether classes give equal parts of the budget, not parts in proportion to their sizes
    equal: bool = False


def choose_coreset(
    rule: str,
    rows: ArrayLike | None,
    labels: ArrayLike,
    budget: int,
    targets: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    settings: RuleSettings | None = None,
) -> ChosenSamples:
    """Return at most ``budget`` samples, chosen by a rule within each class.

    As many as the budget allows, unless fewer are usable. Classes of fewer than three samples leave
    their part to the others.

    - ``rule``: ``full`` (all usable samples, whatever the budget), ``random``,
      ``facility-location``, ``crust``, ``projection`` (GradMatch), ``distance`` (GCFL) or
      ``nearest``.
    - ``rows`` (shape (n, d)): a gradient or a feature vector per sample. Samples with values that
      are not finite are never chosen. ``full`` and ``random`` do without.
    - ``labels`` (shape (n,)): from 0 on; below the number of targets if there are any.
    - ``budget``: samples in total.
    - ``targets`` (shape (classes, d)): mean gradient of each class, for the last three rules. A row
      with values that are not finite stands for an unknown class: then, as without targets, the
      mean of the client's own rows of the class is matched.
    - ``rng``: for ``random``.

    >>> rows = np.array([[1.0], [3.0], [1.1], [9.0], [8.0], [np.nan], [2.0]])
    >>> labels = [0, 0, 0, 1, 1, 1, 1]
    >>> choose_coreset("nearest", rows, labels, 4, targets=[[1.0], [9.0]]).indices.tolist()
    [0, 2, 3, 4]
    """
    one_of(RULES, rule=rule)
    at_least(0, budget=index(budget))
    values = _checked_rows(rule, rows)
    goals = _checked_targets(targets, values)
    classes = _checked_labels(labels, values, goals)
    groups = _groups(classes, values)
    sizes = np.array([len(group) for group in groups.values()], dtype=np.int64)
    settings = settings or RuleSettings()
    total = int(sizes.sum()) if rule == "full" else budget
    parts = class_budgets(sizes, total, equal=settings.equal)
    chooser = _Chooser(rule, settings, rng)
    indices, weights = [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
    for (label, group), part in zip(groups.items(), parts, strict=True):
        if part:
            own = np.zeros((len(group), 0)) if values is None else values[group]
            target = None if goals is None else goals[label]
            chosen, counts = chooser.choose(own, target, int(part))
            indices.append(group[chosen])
            weights.append(counts)
    order = np.argsort(found := np.concatenate(indices))
    return ChosenSamples(found[order], np.concatenate(weights)[order])


@dataclass(frozen=True)
class _Chooser:
    """A rule, applied to one class."""

    rule: str
    settings: RuleSettings
    rng: np.random.Generator | None

    def choose(
        self, rows: NDArray[Any], target: Floats | None, budget: int
    ) -> tuple[Positions, Floats]:
        """Return positions within the class, and weights."""
        if self.rule == "random":
            if self.rng is None:
                raise ValueError("rng: expected a generator for the rule 'random', got none")
            return _alike(uniform(len(rows), budget, self.rng))
        if self.rule == "full" or len(rows) == 1:  # what else could it choose?
            return _alike(np.arange(len(rows)))
        if self.rule == "facility-location":
            chosen = facility_location(rows, budget)
            return chosen, _mean_one(cluster_sizes(rows, chosen))
        if self.rule == "crust":
            chosen = crust(rows, budget, self.settings.radius)
            return chosen, _mean_one(neighbour_counts(rows, chosen, self.settings.radius))
        if target is None or not np.isfinite(target).all():
            target = rows.mean(axis=0, dtype=np.float64)
        if self.rule == "nearest":
            return _alike(nearest(rows, target, budget))
        return self._pursue(rows, target, budget)

    def _pursue(self, rows: NDArray[Any], target: Floats, budget: int) -> tuple[Positions, Floats]:
        """Return what matching pursuit finds, and where it stops early the next nearest."""
        settings = self.settings
        found = matching_pursuit(
            rows,
            target,
            budget,
            rule=self.rule,
            ridge=settings.ridge,
            tolerance=settings.tolerance,
            nonnegative=self.rule == "projection" or settings.nonnegative,
            residual=settings.residual,
        )
        weights = _mean_one(found.weights)
        if len(weights) == budget:
            return found.indices, weights
        rest = np.setdiff1d(np.arange(len(rows)), found.indices)
        more = rest[nearest(rows[rest], target, budget - len(weights))]
        return np.concatenate([found.indices, more]), np.append(weights, np.ones(len(more)))


def _checked_rows(rule: str, rows: ArrayLike | None) -> NDArray[Any] | None:
    if rows is None:
        if rule in ("full", "random"):
            return None
        raise ValueError(f"rows: expected one per sample for the rule {rule!r}, got none")
    values = np.asarray(rows)
    if values.ndim != 2:
        raise ValueError(f"rows: expected one per sample, got shape {values.shape}")
    return values


def _checked_targets(targets: ArrayLike | None, rows: NDArray[Any] | None) -> Floats | None:
    if targets is None or rows is None:
        return None
    goals = np.asarray(targets, dtype=np.float64)
    if goals.ndim != 2 or goals.shape[1] != rows.shape[1]:
        raise ValueError(
            f"targets: expected one per class, {rows.shape[1]} values each, got {goals.shape}"
        )
    return goals


def _checked_labels(
    labels: ArrayLike, rows: NDArray[Any] | None, targets: Floats | None
) -> NDArray[np.int64]:
    classes = np.asarray(labels)
    if classes.ndim != 1 or (classes.size and classes.dtype.kind not in "iu"):
        raise ValueError(f"labels: expected whole numbers, one per sample, got {classes.dtype}")
    if rows is not None and len(rows) != len(classes):
        raise ValueError(f"labels: expected {len(rows)} as there are rows, got {len(classes)}")
    limit = np.inf if targets is None else len(targets)
    outside = classes[(classes < 0) | (classes >= limit)]
    if outside.size:
        raise ValueError(f"labels: expected 0 to {limit - 1:g}, got {outside[0]}")
    return classes.astype(np.int64)


def _groups(labels: NDArray[np.int64], rows: NDArray[Any] | None) -> dict[int, Positions]:
    """Return the usable samples of each class that has any, in ascending order."""
    usable = np.arange(len(labels))
    if rows is not None:
        usable = np.flatnonzero(np.isfinite(rows).all(axis=1))
    order = usable[np.argsort(labels[usable], kind="stable")]
    classes, ends = labels[order], [*np.flatnonzero(np.diff(labels[order])) + 1, len(order)]
    starts = [0, *ends[:-1]] if len(order) else []
    return {int(classes[start]): order[start:end] for start, end in zip(starts, ends, strict=False)}


def _alike(chosen: Positions) -> tuple[Positions, Floats]:
    return chosen, np.ones(len(chosen))


def _mean_one(weights: NDArray[Any]) -> Floats:
    """Return weights that are not negative and one on average; all alike if none is positive."""
    positive = np.maximum(weights, 0).astype(np.float64)
    mean = positive.sum() / max(1, len(positive))
    return positive / mean if mean > 0 else np.ones(len(positive))
