"""How evenly a model serves its clients."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from flwr.app import MetricRecord

from ...core.log.events import Evaluated, Spread
from ...core.tasks.metrics import ACCURACY, Metric

_ABSURD = 1e12


def metric_spread(
    records: Iterable[MetricRecord],
    metrics: Sequence[Metric] = (ACCURACY,),
    server_round: int | None = None,
) -> Evaluated | None:
    """Return mean, worst and best tenth, and variance of what clients report; None if nothing does.

    Every client counts the same, however much data it has. A reply counts if its loss and its main
    metric make sense; of the other metrics each value counts that does. Whatever else a reply holds
    is ignored. The main metric is the first.

    >>> errors = [MetricRecord({"mae": float(i), "loss": 1.0}) for i in range(11)]
    >>> spread = metric_spread(errors, [Metric("mae", higher_is_better=False)]).spread["mae"]
    >>> spread.mean, spread.worst_10, spread.best_10
    (5.0, 10.0, 0.0)
    """
    main = metrics[0]
    sound = [r for r in records if not math.isnan(_loss(r)) and not math.isnan(_value(r, main))]
    if not sound:
        return None
    values = {metric: [_value(record, metric) for record in sound] for metric in metrics}
    return Evaluated(
        round=server_round,
        where="clients",
        clients=len(sound),
        loss=float(np.mean([_loss(record) for record in sound])),
        spread={
            metric.name: _spread(metric, own) for metric, own in values.items() if _any_known(own)
        },
    )


def _loss(record: MetricRecord) -> float:
    return _value(record, Metric("loss", higher_is_better=False))


def _value(record: MetricRecord, metric: Metric) -> float:
    """Return what a client reports; NaN if that cannot be.

    >>> _value(MetricRecord({"accuracy": 1.5}), ACCURACY)
    nan
    """
    value = record.get(metric.name)
    if not isinstance(value, int | float):
        return math.nan
    plausible = 0 <= value <= 1 if metric.share else abs(value) < _ABSURD
    return float(value) if plausible else math.nan


def _any_known(values: Sequence[float]) -> bool:
    return not all(map(math.isnan, values))


def _spread(metric: Metric, values: Sequence[float]) -> Spread:
    ordered = np.sort([value for value in values if not math.isnan(value)])
    tenth = max(1, round(len(ordered) / 10))
    low, high = float(ordered[:tenth].mean()), float(ordered[-tenth:].mean())
    worst, best = (low, high) if metric.higher_is_better else (high, low)
    return Spread(
        mean=float(ordered.mean()), variance=float(ordered.var()), worst_10=worst, best_10=best
    )
