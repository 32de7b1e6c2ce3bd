"""What a model is judged by: names, and which way is better."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is.

    Parameters
    ----------
    name : str
        Its name in ``rounds.csv``, reports and the run config; letters, digits and dashes.
    higher_is_better : bool (default: True)
        Whether more is better.
    share : bool (default: False)
        Whether it lies between 0 and 1 and reads best as a percentage.
    """

    name: str
    higher_is_better: bool = True
    share: bool = False

    def gain(self, value: float, over: float) -> float:
        """Return how much better `value` is than `over`, whichever way is better.

        >>> Metric("mae", higher_is_better=False).gain(2.0, over=3.0)
        1.0
        """
        return value - over if self.higher_is_better else over - value

    def better(self, value: float, than: float) -> bool:
        """Tell whether a value is better than another; anything is better than NaN.

        >>> Metric("accuracy").better(0.9, than=0.8), Metric("mae", False).better(0.9, than=0.8)
        (True, False)
        """
        return math.isnan(than) > math.isnan(value) or self.gain(value, than) > 0

    def best(self, values: Iterable[float]) -> float:
        """Return the best of some values; NaN if there is none.

        >>> Metric("perplexity", higher_is_better=False).best([9.0, 4.0, 6.0])
        4.0
        """
        known = [value for value in values if not math.isnan(value)]
        choose = max if self.higher_is_better else min
        return choose(known, default=math.nan)


ACCURACY = Metric("accuracy", share=True)
