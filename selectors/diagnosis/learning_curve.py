"""How many rounds a target takes, extrapolated by a power law of the error in the rounds.

The logarithm of the error is fitted as a line in the logarithm of the round. The interval is where
the fit's 95 % prediction band for a single round meets the target. Targets far beyond the rounds
seen get no forecast.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

_FEWEST = 6  # rounds that say something of a curve
_FURTHEST = 10  # times as many rounds as were seen
_SKIPPED = 1 / 3  # of the rounds: the first ones, which obey no law


def rounds_to(errors: Sequence[float], target: float) -> tuple[float, float, float] | None:
    """Return after how many rounds the error is ``target``: about, at least and at most.

    ``errors`` begins with that after round 1. None if the rounds seen allow no forecast.

    >>> falling = [0.8 * t**-0.5 for t in range(1, 13)]
    >>> [round(number) for number in rounds_to(falling, 0.16)]
    [25, 25, 25]
    >>> rounds_to([0.8, 0.8, 0.8], 0.16), rounds_to(falling, 0.001)
    (None, None)
    """
    values, numbers = np.asarray(errors, dtype=np.float64), np.arange(1, len(errors) + 1)
    if (values <= target).any():
        reached = float(numbers[values <= target][0])
        return reached, reached, reached
    if len(values) < _FEWEST or target <= 0:
        return None
    kept = numbers > _SKIPPED * len(values)
    x, y = np.log(numbers[kept]), np.log(values[kept])
    fit = stats.linregress(x, y)
    ahead = np.geomspace(len(values), _FURTHEST**3 * len(values), 3000)
    line, goal = fit.intercept + fit.slope * np.log(ahead), np.log(target)
    noise = np.sqrt(np.sum((y - fit.intercept - fit.slope * x) ** 2) / (len(x) - 2))
    lever = (np.log(ahead) - x.mean()) ** 2 / np.sum((x - x.mean()) ** 2)
    band = stats.t.ppf(0.975, len(x) - 2) * noise * np.sqrt(1 + 1 / len(x) + lever)
    middle, least, most = (
        next(iter(ahead[line + side * band <= goal]), np.inf) for side in (0, -1, 1)
    )
    told = fit.pvalue < 0.05 and middle <= _FURTHEST * len(values)
    return (float(middle), float(least), float(most)) if told else None
