"""The privacy of Gaussian noise: the exact curve of the Gaussian mechanism.

A release with noise multiplier s (standard deviation over sensitivity) has

    delta(epsilon) = Phi(1 / (2 s) - epsilon s) - exp(epsilon) Phi(-1 / (2 s) - epsilon s)

(Balle and Wang, 2018, theorem 8). T releases equal one with multiplier s / sqrt(T). Random
choice of clients is not credited (no amplification), because selection by answers is not random.
"""

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import norm


def gaussian_delta(epsilon: float, multiplier: float, releases: int = 1) -> float:
    """Return the delta at which this many releases are (epsilon, delta)-private."""
    s = multiplier / math.sqrt(releases)
    upper = norm.cdf(1 / (2 * s) - epsilon * s)
    return float(upper - math.exp(epsilon + log_ndtr(-1 / (2 * s) - epsilon * s)))


def gaussian_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """Return the noise multiplier with which this many releases are (epsilon, delta)-private.

    >>> round(gaussian_multiplier(0.93, 1e-5), 1)
    4.0
    """

    def excess(multiplier: float) -> float:
        return gaussian_delta(epsilon, multiplier, releases) - delta

    most = math.sqrt(releases)
    while excess(most) > 0:
        most *= 2
    return float(brentq(excess, most / 2**20, most))


def releases_within(budget: float, delta: float, multiplier: float) -> int:
    """Return how many releases are (budget, delta)-private together."""
    if multiplier <= 0:
        return 0
    most = math.floor((multiplier / gaussian_multiplier(budget, delta)) ** 2)
    return most if most < 1 or gaussian_delta(budget, multiplier, most) <= delta else most - 1


def gaussian_epsilon(delta: float, multiplier: float, releases: int = 1) -> float:
    """Return the epsilon at which this many releases are (epsilon, delta)-private.

    >>> round(gaussian_epsilon(1e-5, 4.0, releases=1), 2)
    0.93
    >>> gaussian_epsilon(1e-5, 0.0)
    inf
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta: expected a share above 0 and below 1, got {delta!r}")
    if releases == 0:
        return 0.0
    if multiplier <= 0:
        return math.inf
    if gaussian_delta(0.0, multiplier, releases) <= delta:
        return 0.0
    most = 1.0
    while gaussian_delta(most, multiplier, releases) > delta:
        most *= 2
        if most > 700:  # exp would overflow; nothing is private any more
            return math.inf
    root = brentq(lambda e: gaussian_delta(e, multiplier, releases) - delta, 0.0, most)
    return float(root)
