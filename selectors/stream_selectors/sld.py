"""SLD: long gradients, but not those above the median.

Li et al.: *Sample-level data selection for federated learning*, as the ODE paper (appendix C.3)
adapts it to a stream.
"""

from .ranked import FilteredSelector


class Sld(FilteredSelector):
    """Keeps long gradients, without samples above the median of the last 50.

    >>> from forager.selectors.stream_selectors.base import Offered
    >>> rule = Sld(capacity=2)
    >>> norms = [3.0, 2.0, 2.7, 2.4]  # the medians before them: none, 3.0, 2.5 and 2.7
    >>> rule.offer(Offered([1, 2, 3, 4], [0, 0, 0, 0], gradient_norms=norms)).kept.tolist()
    [0, 3]
    """

    needs = "norm"
    quantile = 0.5
