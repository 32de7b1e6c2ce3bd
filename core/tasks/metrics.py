"""Metrics: names, whether higher is better, and how values are written."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import TaskError, unknown

if TYPE_CHECKING:
    from .problems import Problem


@dataclass(frozen=True)
class Metric:
    """A number that measures how good a model is.

    >>> worst = Metric("worst", False, compute=lambda outputs, targets: max(abs(outputs - targets)))
    >>> worst.better(0.1, than=0.2)
    True
    """

    name: str  # in ``rounds.csv``, reports and the run config; letters, digits and dashes
    higher_is_better: bool = True
    share: bool = False  # whether it lies between 0 and 1 and reads best as a percentage
    # For a user's own: ``compute(outputs, targets)`` on all test samples at once, as CPU tensors
    compute: Callable[[Any, Any], float] | None = None

    def gain(self, value: float, over: float) -> float:
        """Return how much better ``value`` is than ``over``; negative if it is worse."""
        return value - over if self.higher_is_better else over - value

    def better(self, value: float, than: float) -> bool:
        """Return whether a value is better than another; anything is better than NaN."""
        return math.isnan(than) > math.isnan(value) or self.gain(value, than) > 0

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values; NaN if there is none."""
        known = [value for value in values if not math.isnan(value)]
        choose = max if self.higher_is_better else min
        return choose(known, default=math.nan)


ACCURACY = Metric("accuracy", share=True)

NAMED: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        ACCURACY,
        Metric("macro-f1", share=True),
        Metric("balanced-accuracy", share=True),
        Metric("auc", share=True),
        Metric("mean-iou", share=True),
        Metric("mae", higher_is_better=False),
        Metric("rmse", higher_is_better=False),
        Metric("r2"),
        Metric("perplexity", higher_is_better=False),
        Metric("loss", higher_is_better=False),
    )
}
"""Metrics that can be asked for by name."""

_CLASSES = ("classification", "segmentation", "next-token")
_FITS = {
    **dict.fromkeys(("accuracy", "macro-f1"), (*_CLASSES, "multi-label")),
    **dict.fromkeys(("balanced-accuracy", "mean-iou", "perplexity"), _CLASSES),
    "auc": ("classification", "multi-label"),
    **dict.fromkeys(("mae", "rmse", "r2"), ("regression",)),
}
"""Kinds of problem that a metric fits; metrics not named here fit all kinds."""

CLASS_RECALL = "class-recall"
"""Stands for one metric per class: the share of its samples that is recognised."""
RECALL = "recall-"


def of_classes(count: int) -> list[Metric]:
    """Return the metrics that ``class-recall`` stands for."""
    return [Metric(f"{RECALL}{label}", share=True) for label in range(count)]


def resolved(wanted: Sequence[str | Metric], key: str = "metrics") -> tuple[Metric, ...]:
    """Return metrics by their names; an error that names the key for one that does not exist."""
    found = []
    for each in wanted:
        if isinstance(each, Metric):
            found.append(each)
        elif each in NAMED:
            found.append(NAMED[each])
        elif each != CLASS_RECALL:
            raise unknown(key, str(each), [*NAMED, CLASS_RECALL])
    return tuple(found)


def check_fitting(metrics: Sequence[Metric], problem: "Problem", what: str, key: str) -> None:
    """Refuse a metric that does not fit a kind of problem, by name."""
    from .problems import KINDS, problem_of

    if problem.kind not in KINDS or type(problem).predictions is not (
        type(problem_of(problem.kind)).predictions
    ):
        return
    for metric in metrics:
        if metric.compute is None and problem.kind not in _FITS.get(metric.name, (problem.kind,)):
            allowed = [name for name in NAMED if problem.kind in _FITS.get(name, (problem.kind,))]
            raise TaskError(
                f"{key} = {metric.name!r} does not fit: {what} is {problem.kind}; allowed are "
                f"{', '.join(allowed)}"
            )


# Columns of rounds.csv that are no metric, in their order before and after the metrics
BEFORE_METRICS = (
    *("round", "seconds", "select-seconds", "chosen", "received", "failed", "late", "quarantined"),
    *("bytes-down", "bytes-up", "bytes-up-dense", "bytes-select", "bytes-test", "train-loss"),
)
AFTER_METRICS = ("epsilon",)
TAKEN = frozenset((*BEFORE_METRICS, *AFTER_METRICS))
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_ACRONYMS = frozenset({"auc", "auroc", "f1", "iou", "mae", "mse", "r2", "rmse"})


def label(metric: Metric) -> str:
    """Return a metric's name for a sentence or an axis."""
    return " ".join(part.upper() if part in _ACRONYMS else part for part in metric.name.split("-"))


def title(metric: Metric) -> str:
    """Return a metric's name for a heading, or for the start of a sentence."""
    text = label(metric)
    return text[:1].upper() + text[1:]


def written(metric: Metric, value: float | None) -> str:
    """Write a value: shares as percentages, others with four digits."""
    if value is None or math.isnan(value):
        return "unknown"
    return f"{100 * value:.1f} %" if metric.share else f"{value:.4g}"


def check_metrics(metrics: Sequence[Metric]) -> None:
    """Refuse metrics that ``rounds.csv`` could not distinguish."""
    names = [metric.name for metric in metrics]
    if not names:
        raise TaskError("metrics: there is none; a task needs at least one, the one that matters")
    for name in names:
        if not _NAME.fullmatch(name):
            raise TaskError(
                f"metrics: {name!r} is not a name; lower-case letters, digits and dashes are "
                "allowed, at most 40"
            )
        if name in TAKEN or name.startswith("clients-"):
            raise TaskError(f"metrics: {name!r} is a column of rounds.csv already: rename it")
        if names.count(name) > 1:
            raise TaskError(f"metrics: {name!r} is named {names.count(name)} times; keep one")
