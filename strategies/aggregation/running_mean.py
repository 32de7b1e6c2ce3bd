"""A weighted mean of models and metrics, summed as replies arrive."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ...core.wire.arrays import to_record
from ...core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from ...core.wire.records import filled
from ...core.wire.replies import Replies

_TERMS = 2**17  # values of small arrays that are summed at once


class _Terms:
    """A weighted sum of arrays, in double precision.

    A few terms are gathered before they are added. Small arrays of a hundred clients are then one
    addition, and the sum is the same to the last bit as that of adding one by one.
    """

    def __init__(self, shape: tuple[int, ...], expected: int) -> None:
        size = math.prod(shape)
        at_once = max(2, min(expected + 1, 128, _TERMS // (size + 1)))
        self._rows = np.empty((at_once, *shape))
        self._filled = 0
        self._scalar = size == 1

    def add(self, stack: NDArray[Any], weights: NDArray[np.float64]) -> None:
        """Add the arrays along the first axis, each as often as its weight says."""
        weights = weights.reshape(-1, *(1 for _ in stack.shape[1:]))
        start = 0
        while start < len(stack):
            if self._filled == len(self._rows):
                self._rows[0] = self.sum()
                self._filled = 1
            end = min(len(stack), start + len(self._rows) - self._filled)
            free = self._rows[self._filled : self._filled + end - start]
            np.multiply(stack[start:end], weights[start:end], out=free, dtype=np.float64)
            self._filled += end - start
            start = end

    def sum(self) -> NDArray[np.float64]:
        """Return the sum so far."""
        terms = self._rows[: self._filled]
        # Of scalars, numpy would add halves of halves.
        return np.asarray(terms.cumsum(axis=0)[-1] if self._scalar else np.add.reduce(terms))


def _one_by_one(terms: NDArray[np.float64], start: float) -> float:
    """Return a sum in the order of its terms; numpy's own adds halves of halves."""
    return float(np.add.accumulate(np.concatenate([[start], terms]))[-1])


class RunningMean:
    """A weighted mean of named arrays and of metrics, summed in double precision."""

    def __init__(self) -> None:
        self.weight = 0.0
        self._terms: dict[str, _Terms] = {}
        self._integers: dict[str, list[NDArray[Any]]] = {}  # of each client: they have no mean
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._metrics: dict[str, tuple[float, float]] = {}

    def add_stack(
        self,
        arrays: Mapping[str, NDArray[Any]],
        metrics: Mapping[str, Sequence[Any]],
        weights: Sequence[float],
    ) -> None:
        """Add the arrays and metrics of many clients, the first axis being the client.

        The result is that of adding one after the other, to the last bit. Of integers it is the
        median, whatever the weights. Metrics that are lists are left out.
        """
        column = np.array(weights, dtype=np.float64)
        self.weight = _one_by_one(column, self.weight)
        for name, stack in arrays.items():
            self._dtypes[name] = stack.dtype
            if stack.dtype.kind == "f":
                if name not in self._terms:
                    self._terms[name] = _Terms(stack.shape[1:], len(stack))
                self._terms[name].add(stack, column)
            else:
                self._integers.setdefault(name, []).extend(stack)
        for name, values in metrics.items():
            told = [row for row, value in enumerate(values) if isinstance(value, int | float)]
            if not told:
                continue
            counts, numbers = column[told], np.array([values[row] for row in told], np.float64)
            total, of = self._metrics.get(name, (0.0, 0.0))
            self._metrics[name] = (_one_by_one(counts * numbers, total), _one_by_one(counts, of))

    def add(
        self, arrays: Mapping[str, NDArray[Any]], metrics: Mapping[str, Any], *, weight: float
    ) -> None:
        """Add one client's arrays and scalar metrics."""
        stacks = {name: array[np.newaxis] for name, array in arrays.items()}
        self.add_stack(stacks, {name: [value] for name, value in metrics.items()}, [weight])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The mean of each array, in its own dtype."""
        means = {name: terms.sum() / self.weight for name, terms in self._terms.items()}
        means |= {name: median_of(rows) for name, rows in self._integers.items()}
        return {name: np.asarray(means[name], dtype) for name, dtype in self._dtypes.items()}

    @property
    def metrics(self) -> dict[str, float]:
        """The mean over those who report it, of each metric that half of all weight does.

        A metric that only a few clients report is dropped.
        """
        common = {n: told for n, told in self._metrics.items() if 2 * told[1] >= self.weight}
        return {name: total / of for name, (total, of) in common.items()}


def median_of(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the median of integers, the lower of two."""
    return np.asarray(np.sort(rows, axis=0)[(len(rows) - 1) // 2])


def mean_of(tables: Iterable[Replies], *, equal_weights: bool = False) -> Message | None:
    """Return one reply that carries the weighted mean of all, or none if there are none."""
    mean, reply = RunningMean(), None
    for table in tables:
        metrics: dict[str, Sequence[Any]] = dict(table.metrics)
        weights = metrics.pop(NUM_EXAMPLES)
        mean.add_stack(table.arrays, metrics, [1.0] * len(table) if equal_weights else weights)
        reply = reply or table.envelope()  # tables go as they come: only one is held at a time
    if reply is None or mean.weight <= 0:
        return None
    totals = {**mean.metrics, NUM_EXAMPLES: mean.weight}
    content = {ARRAYS: to_record(mean.arrays), METRICS: filled(MetricRecord, totals)}
    reply.content = filled(RecordDict, content)
    return reply
