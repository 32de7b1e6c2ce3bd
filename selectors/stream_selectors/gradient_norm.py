"""Gradient norm: the samples that would change the model most."""

from .ranked import RankedSelector


class GradientNorm(RankedSelector):
    """Keeps the samples of longest gradient.

    >>> from forager.selectors.stream_selectors.base import Offered
    >>> rule = GradientNorm(capacity=1)
    >>> rule.offer(Offered([1, 2], [0, 0], gradient_norms=[0.5, 2.0])).kept.tolist()
    [1]
    """

    needs = "norm"
