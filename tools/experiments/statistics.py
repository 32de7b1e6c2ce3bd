"""Means with spreads, and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, WithJsonSchema
from scipy import stats

CONFIDENCE = 0.95
# nan where it is unknown, which is null in JSON
Number = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "null"}]}),
]


@dataclass(frozen=True)
class Estimate:
    """Mean, standard deviation and 95 % t-interval of some runs; nan where there are too few."""

    mean: Number
    std: Number
    low: Number
    high: Number
    count: int


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences, its 95 % t-interval, and the p-value of the paired t-test."""

    mean: Number
    low: Number
    high: Number
    p_value: Number
    count: int

    @property
    def verdict(self) -> str:
        """What the interval allows one to say."""
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return "unknown"
        if self.low <= 0.0 <= self.high:
            return "no difference"
        return "higher" if self.mean > 0.0 else "lower"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean, sample standard deviation and t-interval."""
    count = len(values)
    mean = float(np.mean(values)) if count else math.nan
    std = half = math.nan
    if count > 1:
        std = float(np.std(values, ddof=1))
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, df=count - 1)) * std / math.sqrt(count)
    return Estimate(mean, std, mean - half, mean + half, count)


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Difference:
    """Compare two cells over the seeds that both have: `first` minus `second`."""
    gaps = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    gap = estimate(gaps)
    if gap.std == 0.0:  # the t-statistic is 0/0 or infinite: the limits are certain
        p_value = 1.0 if gap.mean == 0.0 else 0.0
    else:  # scipy's own test warns of seeds that agree to the last digit
        statistic = gap.mean * math.sqrt(gap.count) / gap.std
        p_value = float(2.0 * stats.t.sf(abs(statistic), df=gap.count - 1))
    return Difference(gap.mean, gap.low, gap.high, p_value, gap.count)
