"""A weighted mean of models and metrics, summed as replies arrive; replies by pieces of entries."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from ...core.wire.records import filled, records_of
from ...core.wire.replies import Replies
from ..layers.base import Outcome

_TERMS = 2**17  # values of small arrays that are summed at once


class _Terms:
    """A weighted sum of arrays, in double precision.

    A few terms are gathered before they are added. Small arrays of a hundred clients are then one
    addition, and the sum is the same to the last bit as that of adding one by one.
    """

    def __init__(self, shape: tuple[int, ...], expected: int) -> None:
        size = math.prod(shape)
        at_once = max(2, min(expected + 1, 128, _TERMS // max(1, size)))
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

        What a few clients call by a name of their own is nobody's metric.
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


_IN_MEMORY = 2**27  # bytes of replies; more wait on disk
_PIECE = 2**26  # bytes of all replies that a strategy is given at a time

Part = tuple[str, int, int]  # entries of an array, from and to


class Pieces:
    """Replies without their arrays, and the arrays in a file, one client after the other."""

    def __init__(self, replies: Iterable[Message]) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 closed by aggregate
        self._like: dict[str, NDArray[Any]] = {}  # shapes and types; no entries
        self._metrics: list[tuple[Message, MetricRecord]] = []
        for reply in replies:
            arrays = from_record(records_of(reply.content, ArrayRecord)[0])
            self._metrics.append((reply, records_of(reply.content, MetricRecord)[0]))
            reply.content = RecordDict()
            if not self._like:
                self._like = {n: np.empty((0, *a.shape), a.dtype) for n, a in arrays.items()}
            for name in self._like:
                self._file.write(arrays[name].tobytes())

    def aggregate(self, strategy: Callable[[list[Message]], Outcome]) -> Outcome:
        """Return what a strategy makes of all replies."""
        with self._file:
            done: dict[str, list[NDArray[Any]]] = {name: [] for name in self._like}
            metrics = None
            for piece in self._pieces():
                arrays, metrics = strategy(self._replies(piece))
                if arrays is None:
                    return None, None
                for name, entries in from_record(arrays).items():
                    done[name].append(entries.ravel())
        whole = {
            name: np.concatenate(parts).reshape(self._like[name].shape[1:])
            for name, parts in done.items()
        }
        return (to_record(whole), metrics) if self._metrics else (None, None)

    def _pieces(self) -> Iterator[list[Part]]:
        """Yield the parts of arrays that are small enough together, in all replies."""
        piece, size = list[Part](), 0
        for name, like in self._like.items():
            entries = math.prod(like.shape[1:])
            total = entries * like.itemsize * len(self._metrics)
            cuts = np.linspace(0, entries, 1 + max(1, -(-total // _PIECE)), dtype=int).tolist()
            for start, end in pairwise(cuts):
                own = total * (end - start) // max(1, entries)
                if piece and size + own > _PIECE:
                    yield piece
                    piece, size = [], 0
                piece.append((name, start, end))
                size += own
        if piece:
            yield piece

    def _replies(self, piece: list[Part]) -> list[Message]:
        """Return replies that hold nothing but some entries."""
        starts, row = dict[str, int](), 0
        for name, like in self._like.items():
            starts[name] = row
            row += math.prod(like.shape[1:]) * like.itemsize
        replies = []
        for client, (reply, metrics) in enumerate(self._metrics):
            arrays = {}
            for name, start, end in piece:
                like = self._like[name]
                whole = end - start == math.prod(like.shape[1:])
                self._file.seek(client * row + starts[name] + start * like.itemsize)
                part = np.frombuffer(self._file.read((end - start) * like.itemsize), like.dtype)
                arrays[name] = part.reshape(like.shape[1:]) if whole else part
            reply.content = filled(RecordDict, {ARRAYS: to_record(arrays), METRICS: metrics})
            replies.append(reply)
        return replies
