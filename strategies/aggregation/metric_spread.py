"""How evenly a model serves its clients."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from ...core.log.events import Evaluated, Spread
from ...core.tasks.metrics import ACCURACY, Metric
from ...core.wire.keys import NUM_EXAMPLES
from ...core.wire.replies import Replies

_ABSURD = 1e12
LOSS_METRIC = Metric("loss", higher_is_better=False)


def metric_spread(
    records: Iterable[MetricRecord],
    metrics: Sequence[Metric] = (ACCURACY,),
    server_round: int | None = None,
) -> Evaluated | None:
    """Return mean, worst and best tenth, and variance of what clients report; None if nothing does.

    Every client counts the same, however much data it has. A reply counts if its loss makes sense,
    and its main metric where it has one: some are undefined on few samples. Of the other metrics
    each value counts that makes sense. Whatever else a reply holds is ignored. The main metric is
    the first.
    """
    main, records = metrics[0], list(records)
    sound = [
        record
        for record in records
        if not math.isnan(_value(record, LOSS_METRIC))
        and (_undefined(record, main) or not math.isnan(_value(record, main)))
    ]
    values = {metric: [_value(record, metric) for record in sound] for metric in metrics}
    spread = {m.name: _spread(m, own) for m, own in values.items() if not all(map(math.isnan, own))}
    if not spread:
        return None
    return Evaluated(
        round=server_round,
        where="clients",
        clients=len(sound),
        untested=sum(record.get(NUM_EXAMPLES) == 0 for record in records),
        loss=float(np.mean([_value(record, LOSS_METRIC) for record in sound])),
        spread=spread,
    )


def untested(table: Replies) -> list[int]:
    """Return the rows of clients that are too small to have held out test data."""
    counts = table.metrics.get(NUM_EXAMPLES, [])
    return [row for row, count in enumerate(counts) if type(count) is int and count == 0]


def _undefined(record: MetricRecord, metric: Metric) -> bool:
    value = record.get(metric.name)
    return value is None or value != value  # NaN, as nothing else, differs from itself


def _value(record: MetricRecord, metric: Metric) -> float:
    return sensible(record.get(metric.name), metric)


def sensible(value: Any, metric: Metric) -> float:
    """Return what a client reports; NaN if that cannot be."""
    if not isinstance(value, int | float):
        return math.nan
    plausible = 0 <= value <= 1 if metric.share else abs(value) < _ABSURD
    return float(value) if plausible else math.nan


def _spread(metric: Metric, values: Sequence[float]) -> Spread:
    ordered = np.sort([value for value in values if not math.isnan(value)])
    tenth = max(1, round(len(ordered) / 10))
    low, high = float(ordered[:tenth].mean()), float(ordered[-tenth:].mean())
    worst, best = (low, high) if metric.higher_is_better else (high, low)
    return Spread(
        mean=float(ordered.mean()), variance=float(ordered.var()), worst_10=worst, best_10=best
    )
