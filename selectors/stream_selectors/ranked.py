"""Rules that keep the samples of highest score; some first exclude likely noise."""

from bisect import bisect_left, insort
from collections import deque
from typing import Any, ClassVar

import numpy as np

from .base import Floats, Offered, StreamSelector
from .value_store import ValueStore

WINDOW = 50  # samples whose scores are remembered to detect noise (ODE, appendix C.3)


class RankedSelector(StreamSelector):
    """Keeps the samples of highest score, whatever their label."""

    def __init__(self, capacity: int, seed: int = 0) -> None:
        super().__init__(capacity, seed)
        self._store = ValueStore(self.capacity)

    @property
    def values(self) -> Floats:
        """Scores of the stored samples."""
        return np.array([self._store.value(key) for key in self._labels], dtype=np.float64)

    def revalue(self, batch: Offered) -> None:
        """Take new scores of stored samples; one that is not finite leaves the old."""
        scores = self._scores(batch).tolist()
        for (key, _), score in zip(batch.numbered(), scores, strict=True):
            if key in self._store:
                self._store.refresh(key, score)

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        gone = self._store.offer(key, score)
        return key in self._store, gone

    def _again(self, key: int, score: float) -> None:
        self._store.refresh(key, score)

    def _forget(self, key: int) -> None:
        self._store.discard(key)

    def state_dict(self) -> dict[str, Any]:
        """Return the stored samples with their scores, and the generator."""
        return super().state_dict() | {"store": self._store.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; samples beyond the capacity are dropped."""
        self._store.load_state_dict(state["store"])
        super().load_state_dict(state)

    def _shrink(self) -> None:
        self._labels = {key: label for key, label in self._labels.items() if key in self._store}


class FilteredSelector(RankedSelector):
    """Keeps the highest scores, without samples above a quantile of those that came before.

    - ``quantile``: of the scores of the last :data:`WINDOW` samples; samples above it count as
      noise.
    """

    quantile: ClassVar[float]

    def __init__(self, capacity: int, seed: int = 0) -> None:
        super().__init__(capacity, seed)
        self._recent = RecentScores(WINDOW)

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        limit = self._recent.quantile(self.quantile)
        self._recent.add(score)
        return super()._place(key, label, score) if score <= limit else (False, None)

    def _again(self, key: int, score: float) -> None:
        self._recent.add(score)
        super()._again(key, score)

    def state_dict(self) -> dict[str, Any]:
        """Return the stored samples, the scores of the window, and the generator."""
        return super().state_dict() | {"recent": np.array(self._recent.scores(), dtype=np.float64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; samples beyond the capacity are dropped."""
        super().load_state_dict(state)
        self._recent = RecentScores(WINDOW)
        for score in state["recent"].tolist():
            self._recent.add(score)


class RecentScores:
    """The last scores, and their quantiles (as ``numpy.quantile`` has them)."""

    def __init__(self, size: int) -> None:
        self._in_order: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def scores(self) -> list[float]:
        """Return the scores, the latest last."""
        return list(self._in_order)

    def add(self, score: float) -> None:
        """Remember a score; the oldest goes if there are too many."""
        if len(self._in_order) == self._in_order.maxlen:
            del self._sorted[bisect_left(self._sorted, self._in_order[0])]
        self._in_order.append(score)
        insort(self._sorted, score)

    def quantile(self, share: float) -> float:
        """Return a quantile of the scores; infinity if there are none."""
        if not self._sorted:
            return float("inf")
        place = share * (len(self._sorted) - 1)
        below = int(place)
        above = min(below + 1, len(self._sorted) - 1)
        low, high = self._sorted[below], self._sorted[above]
        return low + (high - low) * (place - below)


class HighLoss(RankedSelector):
    """Keeps the samples of highest loss.

    >>> rule = HighLoss(capacity=2)
    >>> rule.offer(Offered([1, 2, 3], [0, 0, 0], losses=[0.5, 0.1, 0.9])).kept.tolist()
    [0, 2]
    >>> rule.revalue(Offered([3], [0], losses=[0.2]))  # after training it is learnt
    >>> rule.offer(Offered([4], [0], losses=[0.3])).evicted.tolist()
    [3]
    """

    needs = "loss"


class GradientNorm(RankedSelector):
    """Keeps the samples of longest gradient.

    >>> rule = GradientNorm(capacity=1)
    >>> rule.offer(Offered([1, 2], [0, 0], gradient_norms=[0.5, 2.0])).kept.tolist()
    [1]
    """

    needs = "norm"


class Sld(FilteredSelector):
    """Keeps long gradients, without samples above the median of the last 50.

    Li et al.: *Sample-level data selection for federated learning*, as the ODE paper (appendix C.3)
    adapts it to a stream.

    >>> rule = Sld(capacity=2)
    >>> norms = [3.0, 2.0, 2.7, 2.4]  # the medians before them: none, 3.0, 2.5 and 2.7
    >>> rule.offer(Offered([1, 2, 3, 4], [0, 0, 0, 0], gradient_norms=norms)).kept.tolist()
    [0, 3]
    """

    needs = "norm"
    quantile = 0.5


class FedBalancer(FilteredSelector):
    """Keeps high losses, without samples among the top tenth of the last 50.

    Shin et al.: *FedBalancer: data and pace control for efficient federated learning on
    heterogeneous clients*, as the ODE paper (appendix C.3) adapts it to a stream.

    >>> rule = FedBalancer(capacity=2)
    >>> losses = [0.3, 0.2, 0.1, 9.0]  # 9.0 is more than the 90 % quantile of those before
    >>> rule.offer(Offered([1, 2, 3, 4], [0, 0, 0, 0], losses=losses)).kept.tolist()
    [0, 1]
    """

    needs = "loss"
    quantile = 0.9
