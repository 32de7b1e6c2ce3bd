"""FedBalancer on a stream: high losses, but not the very highest.

Shin et al.: *FedBalancer: data and pace control for efficient federated learning on heterogeneous
clients*, as the ODE paper (appendix C.3) adapts it to a stream.
"""

from .ranked import FilteredSelector


class FedBalancer(FilteredSelector):
    """Keeps high losses, without samples among the top tenth of the last 50.

    >>> from forager.selectors.stream_selectors.base import Offered
    >>> rule = FedBalancer(capacity=2)
    >>> losses = [0.3, 0.2, 0.1, 9.0]  # 9.0 is more than the 90 % quantile of those before
    >>> rule.offer(Offered([1, 2, 3, 4], [0, 0, 0, 0], losses=losses)).kept.tolist()
    [0, 1]
    """

    needs = "loss"
    quantile = 0.9
