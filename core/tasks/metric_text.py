"""Metrics as people read them, and the names that they may have."""

import math
import re
from collections.abc import Sequence

from .errors import TaskError
from .metrics import Metric

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
            raise TaskError(f"metrics: {name!r} is there {names.count(name)} times")
