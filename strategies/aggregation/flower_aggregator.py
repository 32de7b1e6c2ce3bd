"""What Flower's strategies lack: streamed means, preserved dtypes, untouched integers."""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from numpy.typing import NDArray

from ...core.wire.arrays import to_record, view
from ...core.wire.keys import ARRAYS, METRICS, NUM_EXAMPLES
from ...core.wire.records import entries, filled, records_of
from ...core.wire.replies import Replies, tables_in
from ...core.wire.requests import Requests
from ..federation.federation import Federation
from ..federation.grids import GridView, as_sequence
from ..layers.base import Layer, Outcome
from .metric_spread import untested
from .pieces import Pieces
from .running_mean import mean_of, median_of
from .update_average import FromCurrent

_Counted = dict[str, list[NDArray[Any]]]  # what clients sent of each integer array
_TIMES = 10.0  # the usual, or a part of it, that a metric which weighs others may be


class FlowerAggregator(Layer):
    """The innermost layer, around one of Flower's strategies.

    - Where the strategy needs only the weighted mean of the replies (FedAvg and all that adapt its
      result), replies are summed in double precision as they arrive, and dropped. The strategy gets
      the mean as a single reply.
    - Integer arrays are hidden from the strategy. Counters, which have no axes (as in batch
      normalisation), take the median of the replies. All others stay as on the server: an index
      that one client invents would be out of range for all.
    - The model keeps its dtypes; FedAdam and q-FedAvg would turn float32 into float64.

    ``mean_like``: the strategy needs only the mean. ``by_entry``: it works entry by entry.
    ``needs``: metrics that a reply must have, each at least 0, to be aggregated.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        mean_like: bool,
        by_entry: bool = False,
        needs: Sequence[str] = (),
        equal_weights: bool = False,
        federation: Federation | None = None,
    ) -> None:
        super().__init__(inner, federation)
        self.mean_like = mean_like
        self.by_entry = by_entry
        self.needs = tuple(needs)
        self.equal_weights = equal_weights
        self._dtypes: dict[str, str] = {}
        self._integers: dict[str, NDArray[Any]] = {}  # of the server's model

    def metrics_needed(self) -> tuple[str, ...]:
        """Return the metrics without which the strategy cannot aggregate a reply."""
        return self.needs

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy configure the float arrays, and send all."""
        self._know(arrays)
        return self._configured(self.inner.configure_train, server_round, arrays, config, grid)

    def begin(self, server_round: int, arrays: ArrayRecord, grid: Grid) -> None:
        """Let the strategy write a message that nobody is sent."""
        self._know(arrays)
        with _sampling_unlogged():
            own = _floats(arrays), ConfigRecord(), GridView(grid, [0])
            list(self.inner.configure_train(server_round, *own))

    def _know(self, arrays: ArrayRecord) -> None:
        self._dtypes = {name: array.dtype for name, array in arrays.items()}
        self._integers = {n: view(arrays[n]) for n, d in self._dtypes.items() if not _is_float(d)}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy configure the float arrays, and send all."""
        return self._configured(self.inner.configure_evaluate, server_round, arrays, config, grid)

    def _configured(
        self,
        configure: Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]],
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> Iterable[Message]:
        nodes, seen = as_sequence(grid.get_node_ids()), grid
        alike = len(nodes) > 0 and _takes_everyone(self.inner)
        if alike:  # all messages are the same: the strategy writes one, which stands for all
            seen = GridView(grid, nodes[:1])
        with _sampling_unlogged() if alike else nullcontext():
            requests = Requests.of(configure(server_round, _floats(arrays), config, seen))
        if requests is None:
            return []
        if alike:
            requests = Requests(requests.message, list(nodes))
        requests.put(ARRAYS, arrays)
        return self.federation.assign(server_round, requests)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate float arrays by the strategy; integer arrays are not averaged."""
        tables, counted = tables_in(replies), _Counted({name: [] for name in self._integers})
        if self.mean_like:
            arrays, metrics = self._of_mean(server_round, tables, counted)
        else:
            rows: Iterable[Message] = (reply for table in tables for reply in table)
            if self.equal_weights:
                rows = map(_counting_once, rows)
            if counted:
                rows = (_without_integers(reply, counted) for reply in rows)
            with quick_collections():
                ask = partial(self._of_replies, server_round)
                if self.by_entry:
                    arrays, metrics = Pieces(rows, self.federation.folder).aggregate(ask)
                else:
                    arrays, metrics = ask(list(rows))
        return self._restored(arrays, counted), metrics

    def _of_mean(self, server_round: int, tables: Iterable[Replies], counted: _Counted) -> Outcome:
        """Return the strategy's result for the mean, as its only reply."""
        mean = mean_of(tables, equal_weights=self.equal_weights)
        if mean is None:
            return None, None
        if counted or not _is_plain_average(self.inner):
            mean = _without_integers(mean, counted) if counted else mean
            return self._of_replies(server_round, [mean], alike=True)
        # FedAvg would make the same of it, at some length.
        metrics = dict(entries(records_of(mean.content, MetricRecord)[0]))
        del metrics[NUM_EXAMPLES]
        return records_of(mean.content, ArrayRecord)[0], filled(MetricRecord, metrics)

    def _of_replies(
        self, server_round: int, replies: list[Message], *, alike: bool = False
    ) -> Outcome:
        """Return the strategy's result for replies that all have the same metrics."""
        replies = replies if alike else uniform(replies)
        for name in self.needs:
            _bounded(replies, name)
        return self.inner.aggregate_train(server_round, replies) if replies else (None, None)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate what sound replies there are."""
        tables = (table.without(untested(table)) for table in tables_in(replies))
        sound = uniform(reply for table in tables for reply in table)
        return super().aggregate_evaluate(server_round, sound)

    def _restored(self, arrays: ArrayRecord | None, counted: _Counted) -> ArrayRecord | None:
        if not arrays:
            return None
        restored = {}
        for name, dtype in self._dtypes.items():
            if name not in self._integers:
                array = view(arrays[name])
            else:
                is_counter = self._integers[name].ndim == 0
                array = median_of(counted[name]) if is_counter else self._integers[name]
            restored[name] = array.astype(dtype, copy=False)
        return to_record(restored)


def _takes_everyone(strategy: Strategy) -> bool:
    """Return whether a strategy is one of Flower's that send the same to all nodes they see."""
    of_flower = type(strategy).__module__.startswith("flwr.serverapp.strategy.")
    known = of_flower or isinstance(strategy, FromCurrent)
    if not known or not isinstance(strategy, FedAvg):
        return False
    least = strategy.min_train_nodes, strategy.min_evaluate_nodes, strategy.min_available_nodes
    return strategy.fraction_train == strategy.fraction_evaluate == 1.0 and max(least) <= 1


@contextmanager
def _sampling_unlogged() -> Iterator[None]:
    """Drop Flower's line on how many nodes it sampled: it sees one, which stands for all."""
    flower = logging.getLogger("flwr")

    def passes(record: logging.LogRecord) -> bool:
        return "Sampled %s nodes" not in str(record.msg)

    flower.addFilter(passes)
    try:
        yield
    finally:
        flower.removeFilter(passes)


def _is_plain_average(strategy: Strategy) -> bool:
    """Return whether a strategy is Flower's FedAvg with its own metrics, and no kind of it."""
    if type(strategy) is not FedAvg:
        return False
    own, usual = vars(strategy), vars(FedAvg())
    return all(own[name] == usual[name] for name in ("weighted_by_key", "train_metrics_aggr_fn"))


def _is_float(dtype: str) -> bool:
    return np.dtype(dtype).kind == "f"


def _floats(arrays: ArrayRecord) -> ArrayRecord:
    floats = {name: array for name, array in arrays.items() if _is_float(array.dtype)}
    return arrays if len(floats) == len(arrays) else filled(ArrayRecord, floats)


def _counting_once(reply: Message) -> Message:
    metrics = dict(entries(records_of(reply.content, MetricRecord)[0]))
    arrays = records_of(reply.content, ArrayRecord)[0]
    once = filled(MetricRecord, {**metrics, NUM_EXAMPLES: 1})
    reply.content = filled(RecordDict, {ARRAYS: arrays, METRICS: once})
    return reply


def _without_integers(reply: Message, counted: _Counted) -> Message:
    """Take integer arrays out of a reply, into ``counted``."""
    arrays = dict(entries(records_of(reply.content, ArrayRecord)[0]))
    for name, values in counted.items():
        values.append(view(arrays.pop(name)))
    metrics = records_of(reply.content, MetricRecord)[0]
    reply.content = filled(RecordDict, {ARRAYS: filled(ArrayRecord, arrays), METRICS: metrics})
    return reply


def _bounded(replies: list[Message], name: str) -> None:
    """Limit a metric to near the usual value, so that no single client decides the result.

    q-FedAvg weighs by a power of the losses, and divides by it.
    """
    records = [records_of(reply.content, MetricRecord)[0] for reply in replies]
    values = [float(str(record[name])) for record in records]
    usual = float(np.median(values)) if values else 0.0
    for record, value in zip(records, values, strict=True):
        record[name] = max(usual / _TIMES, min(value, usual * _TIMES or value))


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
def quick_collections() -> Iterator[None]:
    """Exclude existing objects from garbage collection: a scan takes as long as several rounds."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
