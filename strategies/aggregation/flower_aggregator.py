"""What Flower's strategies lack: streamed means, preserved dtypes, untouched integers."""

import gc
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

from ...core.wire.arrays import from_record, to_record, view
from ...core.wire.broadcast import Broadcast, ReplyStack
from ...core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from ...core.wire.records import contents, entries, filled, records_of
from ..federation.federation import Federation
from ..federation.grids import GridView, as_sequence
from ..layers.base import Layer

_TERMS = 2**17  # values of small arrays that are summed at once
_LEAST_SHARE = 0.1  # of the usual, that a metric which others are weighed by is raised to


class FlowerAggregator(Layer):
    """The innermost layer, around one of Flower's strategies.

    - Where the strategy needs only the weighted mean of the replies (FedAvg and all that adapt its
      result), the replies are summed as they arrive and dropped: the server holds one sum in double
      precision and the replies of one pull, however many clients there are. The strategy gets the
      mean as a single reply. Summing in double precision also makes the result all but independent
      of the order in which replies arrive.
    - Integer arrays (the counters of batch normalisation) are not averaged and never shown to the
      strategy: the largest wins.
    - The model keeps its dtypes; FedAdam and q-FedAvg would otherwise turn float32 into float64 and
      double every message.

    Parameters
    ----------
    inner : Strategy
        One of Flower's.
    mean_like : bool
        Whether the strategy needs only the mean.
    needs : sequence of str (default: none)
        Metrics, not negative, without which the strategy cannot aggregate a reply.
    equal_weights : bool (default: False)
        Whether clients count the same, however much data they have.
    federation : Federation, optional
        The clients.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        mean_like: bool,
        needs: Sequence[str] = (),
        equal_weights: bool = False,
        federation: Federation | None = None,
    ) -> None:
        super().__init__(inner, federation)
        self.mean_like = mean_like
        self.needs = tuple(needs)
        self.equal_weights = equal_weights
        self._dtypes: dict[str, str] = {}

    def metrics_needed(self) -> tuple[str, ...]:
        """Return the metrics without which the strategy cannot aggregate a reply."""
        return self.needs

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy configure the float arrays, and send all."""
        self._dtypes = {name: array.dtype for name, array in arrays.items()}
        floats, nodes = _floats(arrays), as_sequence(grid.get_node_ids())
        if not nodes or not _takes_everyone(self.inner):
            messages = super().configure_train(server_round, floats, config, grid)
            return self._with_all_arrays(messages, arrays)
        # All messages are the same: the strategy writes one, which stands for all.
        first = GridView(grid, nodes[:1])
        messages = self._with_all_arrays(
            self.inner.configure_train(server_round, floats, config, first), arrays
        )
        return self.federation.remember(
            ("train", server_round), Broadcast(messages[0], list(nodes))
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy configure the float arrays, and send all."""
        return self._with_all_arrays(
            super().configure_evaluate(server_round, _floats(arrays), config, grid), arrays
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate float arrays by the strategy, integer arrays by their maximum."""
        buffers: dict[str, NDArray[Any]] = {}
        integers = [name for name, dtype in self._dtypes.items() if not _is_float(dtype)]
        plain = self.mean_like and not (integers or self.equal_weights or self.needs)
        if plain and isinstance(replies, ReplyStack) and replies.whole:
            return self._of_mean(server_round, mean_of_stack(replies))
        replies = (reply for reply in replies if not reply.has_error())
        if self.equal_weights:
            replies = map(_counting_once, replies)
        if integers:
            replies = (_without_buffers(reply, integers, buffers) for reply in replies)
        replies = mean_reply(replies) if self.mean_like else uniform(replies)
        for name in self.needs:
            _floored(replies, name)
        if not replies:
            return None, None
        with nullcontext() if self.mean_like else _quick_collections():
            arrays, metrics = super().aggregate_train(server_round, replies)
        return self._restored(arrays, buffers), metrics

    def _of_mean(
        self, server_round: int, mean: Message
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return what the strategy makes of a mean that is its only reply."""
        if _is_plain_average(self.inner):  # it would return what it is given, at some length
            arrays = records_of(mean.content, ArrayRecord)[0]
            metrics = dict(entries(records_of(mean.content, MetricRecord)[0]))
            del metrics[NUM_EXAMPLES]
            return self._restored(arrays, {}), filled(MetricRecord, metrics)
        made, told = super().aggregate_train(server_round, [mean])
        return self._restored(made, {}), told

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate what sound replies there are."""
        sound = uniform(reply for reply in replies if not reply.has_error())
        return super().aggregate_evaluate(server_round, sound)

    def _with_all_arrays(self, messages: Iterable[Message], arrays: ArrayRecord) -> list[Message]:
        messages = list(messages)
        contents: dict[int, RecordDict] = {}
        for message in messages:
            # The strategy shares one RecordDict among its messages, and so do these; a layer
            # outside that adds something makes its own copy (see `attach`).
            made = contents.get(id(message.content))
            if made is None:
                made = filled(RecordDict, {**entries(message.content), ARRAYS: arrays})
                contents[id(message.content)] = made
            message.content = made
        return messages

    def _restored(
        self, arrays: ArrayRecord | None, buffers: dict[str, NDArray[Any]]
    ) -> ArrayRecord | None:
        if not arrays:
            return None
        restored = {}
        for name, dtype in self._dtypes.items():
            array = buffers[name] if name in buffers else view(arrays[name])
            restored[name] = array.astype(dtype, copy=False)
        return to_record(restored)


def _takes_everyone(strategy: Strategy) -> bool:
    """Return whether a strategy is one of Flower's that send the same to all nodes they see."""
    known = type(strategy).__module__.startswith("flwr.serverapp.strategy.")
    if not known or not isinstance(strategy, FedAvg):
        return False
    fewest = max(strategy.min_train_nodes, strategy.min_available_nodes)
    return strategy.fraction_train == 1.0 and fewest <= 1


def _is_plain_average(strategy: Strategy) -> bool:
    """Return whether a strategy is Flower's FedAvg with its own metrics, and no kind of it."""
    if type(strategy) is not FedAvg:
        return False
    plain = FedAvg()
    return (strategy.weighted_by_key, strategy.train_metrics_aggr_fn) == (
        plain.weighted_by_key,
        plain.train_metrics_aggr_fn,
    )


def _is_float(dtype: str) -> bool:
    return np.dtype(dtype).kind == "f"


def _floats(arrays: ArrayRecord) -> ArrayRecord:
    if all(_is_float(array.dtype) for array in arrays.values()):
        return arrays
    kept = ArrayRecord()
    for name, array in arrays.items():
        if _is_float(array.dtype):
            kept[name] = array
    return kept


def _counting_once(reply: Message) -> Message:
    metrics = dict(entries(records_of(reply.content, MetricRecord)[0]))
    arrays = records_of(reply.content, ArrayRecord)[0]
    once = filled(MetricRecord, {**metrics, NUM_EXAMPLES: 1})
    reply.content = filled(RecordDict, {ARRAYS: arrays, METRICS: once})
    return reply


def _without_buffers(
    reply: Message, integers: list[str], buffers: dict[str, NDArray[Any]]
) -> Message:
    """Take integer arrays out of a reply and into ``buffers``, the larger of two winning."""
    arrays = dict(entries(records_of(reply.content, ArrayRecord)[0]))
    for name in integers:
        value = view(arrays.pop(name))
        buffers[name] = np.maximum(buffers[name], value) if name in buffers else value
    metrics = records_of(reply.content, MetricRecord)[0]
    reply.content = filled(RecordDict, {ARRAYS: filled(ArrayRecord, arrays), METRICS: metrics})
    return reply


def _floored(replies: list[Message], name: str) -> None:
    """Raise a metric to a small share of the usual, so that no client's zero decides for all.

    q-FedAvg divides by a power of the losses.
    """
    records = [records_of(reply.content, MetricRecord)[0] for reply in replies]
    values = [float(str(record[name])) for record in records]
    least = _LEAST_SHARE * float(np.median(values)) if values else 0.0
    for record, value in zip(records, values, strict=True):
        record[name] = max(value, least)


def uniform(replies: Iterable[Message]) -> list[Message]:
    """Return replies with records of the same names, and the scalar metrics that all have.

    Flower's strategies refuse to aggregate anything if a single client sends one metric more or
    less than the others, and some of them take records apart.
    """
    replies = list(replies)
    metrics = [entries(records_of(reply.content, MetricRecord)[0]) for reply in replies]
    common = [
        name
        for name in (metrics[0] if metrics else ())
        if all(isinstance(other.get(name), int | float) for other in metrics)
    ]
    for reply, own in zip(replies, metrics, strict=True):
        content: dict[str, Any] = {METRICS: MetricRecord({name: own[name] for name in common})}
        for arrays in records_of(reply.content, ArrayRecord):
            content[ARRAYS] = filled(ArrayRecord, entries(arrays))
        reply.content = filled(RecordDict, content)
    return replies


@contextmanager
def _quick_collections() -> Iterator[None]:
    """Exclude existing objects from garbage collection: some strategies collect once per reply."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _Terms:
    """A weighted sum of arrays, in double precision.

    A few terms are gathered before they are added. Small arrays of a hundred clients are then one
    addition, and the sum is the same to the last bit as that of adding one by one.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        size = math.prod(shape)
        self._rows = np.empty((max(2, min(128, _TERMS // max(1, size))), *shape))
        self._filled = 0
        self._scalar = size == 1

    def add(self, array: NDArray[Any], weight: float) -> None:
        """Add an array, as often as ``weight`` says."""
        if self._filled == len(self._rows):
            self._rows[0] = self.sum()
            self._filled = 1
        np.multiply(array, weight, out=self._rows[self._filled, ...], dtype=np.float64)
        self._filled += 1

    def add_stack(self, stack: NDArray[Any], weights: NDArray[np.float64]) -> None:
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
    """A weighted mean of named arrays and of metrics, summed in double precision.

    >>> mean = RunningMean()
    >>> mean.add({"w": np.array([1.0, 3.0], np.float32)}, {"loss": 1.0}, weight=1)
    >>> mean.add({"w": np.array([4.0, 0.0], np.float32)}, {"loss": 4.0}, weight=2)
    >>> mean.arrays["w"].tolist(), mean.metrics
    ([3.0, 1.0], {'loss': 3.0})
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self._terms: dict[str, _Terms] = {}
        self._largest: dict[str, NDArray[Any]] = {}  # of integers, which are not averaged
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._metrics: dict[str, tuple[float, float]] = {}

    def add_stack(
        self,
        arrays: Mapping[str, NDArray[Any]],
        metrics: Mapping[str, Sequence[float]],
        weights: Sequence[float],
    ) -> None:
        """Add the float arrays and metrics of many clients, the first axis being the client.

        The result is that of adding one after the other, to the last bit.
        """
        column = np.array(weights, dtype=np.float64)
        self.weight = _one_by_one(column, self.weight)
        for name, stack in arrays.items():
            self._dtypes[name] = stack.dtype
            terms = self._terms.setdefault(name, _Terms(stack.shape[1:]))
            terms.add_stack(stack, column)
        for name, values in metrics.items():
            total, of = self._metrics.get(name, (0.0, 0.0))
            weighted = column * np.array(values, dtype=np.float64)
            self._metrics[name] = (_one_by_one(weighted, total), _one_by_one(column, of))

    def add(
        self, arrays: dict[str, NDArray[Any]], metrics: dict[str, Any], *, weight: float
    ) -> None:
        """Add one client's arrays and scalar metrics."""
        self.weight += weight
        for name, array in arrays.items():
            if array.dtype.kind != "f":
                self._dtypes[name] = array.dtype
                seen = self._largest.get(name, array)
                self._largest[name] = np.maximum(seen, array)
            else:
                terms = self._terms.get(name)
                if terms is None:
                    self._dtypes[name] = array.dtype
                    terms = self._terms[name] = _Terms(array.shape)
                terms.add(array, weight)
        for name, value in metrics.items():
            if not isinstance(value, list):
                total, of = self._metrics.get(name, (0.0, 0.0))
                self._metrics[name] = (total + weight * value, of + weight)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The mean of each array, in its own dtype."""
        return {
            name: np.asarray(
                (
                    self._largest[name]
                    if name in self._largest
                    else self._terms[name].sum() / self.weight
                ),
                dtype=dtype,
            )
            for name, dtype in self._dtypes.items()
        }

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each metric over those who reported it."""
        return {name: total / of for name, (total, of) in self._metrics.items()}


def mean_of_stack(replies: ReplyStack) -> Message:
    """Return one reply that carries the weighted mean of all, which are checked already."""
    mean = RunningMean()
    metrics = dict(replies.metrics)
    mean.add_stack(replies.arrays, metrics, metrics.pop(NUM_EXAMPLES))
    return replies.as_one(to_record(mean.arrays), {**mean.metrics, NUM_EXAMPLES: mean.weight})


def mean_reply(replies: Iterable[Message]) -> list[Message]:
    """Return one reply that carries the weighted mean of all, or none if there are none."""
    mean = RunningMean()
    first: Message | None = None
    for reply in replies:
        for record in contents(reply).values():
            if type(record) is MetricRecord:
                metrics = dict(entries(record))
            elif type(record) is ArrayRecord:
                arrays = from_record(record)
        mean.add(arrays, metrics, weight=float(metrics.pop(NUM_EXAMPLES)))
        if first is None:
            first = reply
            first.content = RecordDict()  # only its envelope is needed
    if first is None or mean.weight <= 0:
        return []
    totals = MetricRecord({**mean.metrics, NUM_EXAMPLES: mean.weight})
    first.content = RecordDict({ARRAYS: to_record(mean.arrays), METRICS: totals})
    return [first]
