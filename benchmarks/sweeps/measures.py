"""Measures of a run: final accuracy, rounds to a target, total bytes, ..."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...tools.experiments.measures import Array, Measure, Rows, series


def _from_series(metric: str, of: Callable[[Array, Array], float]) -> Measure:
    def value(rows: Rows) -> float | None:
        rounds, values = series(rows, metric)
        return float(of(rounds, values)) if len(values) else None

    return Measure((metric,), value)


def final(metric: str) -> Measure:
    """Last value."""
    return _from_series(metric, lambda rounds, values: values[-1])


def last_mean(metric: str, evaluations: int = 3) -> Measure:
    """Mean of the last values, as many as there are at most: steadier than the last alone.

    >>> last_mean("loss").of([{"round": r, "loss": 2.0 * r} for r in range(5)])
    6.0
    """
    return _from_series(metric, lambda rounds, values: values[-evaluations:].mean())


def best(metric: str, *, lowest: bool = False) -> Measure:
    """Highest value, or the lowest one; rounds at which the metric was nan do not count."""

    def value(rounds: Array, values: Array) -> float:
        candidates = values[~np.isnan(values)]
        if not len(candidates):
            return float("nan")
        return float(candidates.min() if lowest else candidates.max())

    return _from_series(metric, value)


def area(metric: str) -> Measure:
    """Area under the curve over rounds, by trapezoids.

    >>> area("accuracy").of([{"round": 1, "accuracy": 0.2}, {"round": 3, "accuracy": 0.6}])
    0.8
    """
    return _from_series(metric, lambda rounds, values: float(np.trapezoid(values, rounds)))


def mean_height(metric: str) -> Measure:
    """Area under the curve over its width: the mean over all rounds, whatever was left out.

    >>> mean_height("accuracy").of([{"round": 1, "accuracy": 0.2}, {"round": 3, "accuracy": 0.6}])
    0.4
    """

    def value(rounds: Array, values: Array) -> float:
        width = rounds[-1] - rounds[0]
        return float(np.trapezoid(values, rounds) / width) if width else float(values[-1])

    return _from_series(metric, value)


def jitter(metric: str) -> Measure:
    """Mean change from one measured round to the next, up or down: how restless a curve is.

    >>> curve = [{"round": r, "accuracy": a} for r, a in enumerate((0.25, 0.5, 0.25))]
    >>> jitter("accuracy").of(curve)
    0.25
    """
    return _from_series(
        metric, lambda _, values: float(np.abs(np.diff(values)).mean()) if len(values) > 1 else 0.0
    )


def at_round(metric: str, number: int) -> Measure:
    """Value at one round; a run that did not measure it there has none."""

    def value(rows: Rows) -> float | None:
        rounds, values = series(rows, metric)
        found = values[rounds == number]
        return float(found[0]) if len(found) else None

    return Measure((metric,), value)


def rounds_to(metric: str, target: float, *, lowest: bool = False) -> Measure:
    """First round at which a metric reaches a target; a run that never does has none."""

    def value(rows: Rows) -> float | None:
        rounds, values = series(rows, metric)
        reached = rounds[values <= target if lowest else values >= target]
        return float(reached[0]) if len(reached) else None

    return Measure((metric,), value)


def seconds_to(
    metric: str, target: float, clock: str = "simulated", *, lowest: bool = False
) -> Measure:
    """Time on a clock at which a metric first reaches a target; a run that never does has none.

    >>> rows = [{"round": 1, "accuracy": 0.2, "simulated": 9.0},
    ...         {"round": 2, "accuracy": 0.6, "simulated": 17.5}]
    >>> seconds_to("accuracy", 0.5).of(rows), seconds_to("accuracy", 0.7).of(rows)
    (17.5, None)
    >>> seconds_to("accuracy", 0.3, lowest=True).of(rows)
    9.0
    """

    def reaches(value: float) -> bool:
        return value <= target if lowest else value >= target

    def value(rows: Rows) -> float | None:
        reached = [row for row in rows if reaches(_number(row.get(metric)))]
        return _number(reached[0].get(clock)) if reached else None

    return Measure((metric, clock), value)


def _number(value: object) -> float:
    """Return a measured value as a number, and what was not measured as not a number."""
    return float(value) if isinstance(value, int | float) else float("nan")


def total(*metrics: str) -> Measure:
    """Sum of one or more metrics over all rounds."""
    return Measure(
        metrics, lambda rows: float(sum(series(rows, metric)[1].sum() for metric in metrics))
    )


def total_bytes() -> Measure:
    """All bytes of a run: down, up, and what selecting took."""
    return total("bytes-down", "bytes-up", "bytes-select")
