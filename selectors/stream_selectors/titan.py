"""Titan: places for each class by how much its gradients differ, then samples by importance.

Gong, Xing, Zheng, Wu, 2025: *A Two-Stage Data Selection Framework for Data-Efficient Model Training
on Edge Devices*, by the authors of ODE. Its second stage, classified importance sampling, draws
samples of a class in proportion to the lengths of their gradients g (eq. 3), and class y has
places in proportion to ``n_y sqrt((E ||g||)^2 - ||E g||^2)`` (eq. 2). Ours omits the second term,
for which devices would keep a mean gradient of each class: a class gets ``n_y E ||g||`` places, as
in importance sampling over all samples, which the paper improves on. Drawn samples stay stored and
have equal weights, where the paper divides by their probabilities. The first stage, which saves
slow devices the gradients of most samples, is omitted.
"""

import heapq
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from .base import Floats, Offered, StreamSelector

_WINDOW = 50  # samples of a class over which the mean length of gradients is taken


class Titan(StreamSelector):
    """Keeps samples of each class drawn in proportion to their gradients' lengths.

    A sample of length g that drew u has priority ``log(u) / g``: those of highest priority are a
    draw without replacement (Efraimidis and Spirakis, 2006). A class over its places loses the
    lowest.

    >>> rule = Titan(capacity=4)
    >>> batch = Offered(range(80), [0, 1] * 40, gradient_norms=[3.0, 1.0] * 40)
    >>> _ = rule.offer(batch)
    >>> rule.labels.tolist().count(0)
    3
    """

    needs = "norm"

    def __init__(self, capacity: int, seed: int = 0) -> None:
        super().__init__(capacity, seed)
        self._drawn: dict[int, tuple[float, float]] = {}  # log(u) and length, by key
        self._classes: dict[int, tuple[int, float]] = {}  # arrivals and mean length, by label
        self._here: Counter[int] = Counter()  # stored, by label
        # Priorities and keys by label; may hold what is no longer so.
        self._queues: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)

    @property
    def values(self) -> Floats:
        """Lengths of the gradients of the stored samples."""
        return np.array([self._drawn[key][1] for key in self._labels], dtype=np.float64)

    def revalue(self, batch: Offered) -> None:
        """Take new lengths of stored samples; one that is not finite leaves the old."""
        scores = self._scores(batch).tolist()
        for (key, _), score in zip(batch.numbered(), scores, strict=True):
            if key in self._drawn and math.isfinite(score):
                self._again(key, score)

    def _place(self, key: int, label: int, score: float) -> tuple[bool, int | None]:
        count, mean = self._classes.get(label, (0, 0.0))
        self._classes[label] = count + 1, mean + (score - mean) / min(count + 1, _WINDOW)
        if not self.capacity:
            return False, None
        self._drawn[key] = math.log(max(float(self._lot.draw(1)[0]), 1e-300)), score
        self._here[label] += 1
        self._queue(key, label)
        if len(self._drawn) <= self.capacity:
            return True, None
        gone = self._drop_one()
        return (True, gone) if gone != key else (False, None)

    def _drop_one(self) -> int:
        """Drop the sample of lowest priority of the class that is furthest over its places."""
        needs = {label: count * mean for label, (count, mean) in self._classes.items()}
        total = sum(needs.values()) or 1.0
        most = max(
            (label for label, count in self._here.items() if count),
            key=lambda label: (self._here[label] - self.capacity * needs[label] / total, label),
        )
        while True:
            priority, key = heapq.heappop(self._queues[most])
            if key in self._drawn and self._priority(key) == priority:
                del self._drawn[key]
                self._here[most] -= 1
                return key

    def _priority(self, key: int) -> float:
        log, length = self._drawn[key]
        return log / max(length, 1e-12)

    def _queue(self, key: int, label: int) -> None:
        """Put a sample into the queue of its class, which is made anew if most of it is old."""
        queue = self._queues[label]
        if len(queue) > 4 * self.capacity + 16:
            now = {(self._priority(other), other) for _, other in queue if other in self._drawn}
            queue[:] = sorted(now)
        heapq.heappush(queue, (self._priority(key), key))

    def _again(self, key: int, score: float) -> None:
        self._drawn[key] = self._drawn[key][0], score
        self._queue(key, self._labels[key])

    def _forget(self, key: int) -> None:
        """Let go of a sample; the queue of its class finds out when it comes to it."""
        del self._drawn[key]
        self._here = Counter(self._labels.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the stored samples with their draws, statistics of classes, and the generator."""
        drawn = np.array([self._drawn[key] for key in self._labels]).reshape(len(self), 2)
        classes = np.array([(y, *known) for y, known in self._classes.items()])
        return super().state_dict() | {"drawn": drawn, "classes": classes.reshape(-1, 3)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; samples beyond the capacity are dropped."""
        super().load_state_dict(state)
        pairs = zip(state["keys"].tolist(), state["drawn"].tolist(), strict=True)
        self._drawn = {key: (log, length) for key, (log, length) in pairs if key in self._labels}
        self._classes = {int(y): (int(n), mean) for y, n, mean in state["classes"].tolist()}
        self._here = Counter(self._labels.values())
        self._queues.clear()
        for key, label in self._labels.items():
            self._queue(key, label)
