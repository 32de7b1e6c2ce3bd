"""High loss: the samples that the model does worst on."""

from .ranked import RankedSelector


class HighLoss(RankedSelector):
    """Keeps the samples of highest loss.

    >>> from forager.selectors.stream_selectors.base import Offered
    >>> rule = HighLoss(capacity=2)
    >>> rule.offer(Offered([1, 2, 3], [0, 0, 0], losses=[0.5, 0.1, 0.9])).kept.tolist()
    [0, 2]
    >>> rule.revalue(Offered([3], [0], losses=[0.2]))  # after training it is learnt
    >>> rule.offer(Offered([4], [0], losses=[0.3])).evicted.tolist()
    [3]
    """

    needs = "loss"
