"""The data of a diagnosis: what every reply reveals to the server anyway."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.log.events import Examined
from ...core.methods.diagnose import Diagnosis
from ...core.tasks import load_task
from ...core.tasks.metrics import ACCURACY, Metric
from ...core.tasks.models.head import has_output_bias
from ...core.wire.arrays import from_record
from ...core.wire.keys import AGREEMENT, AS_IT_CAME, LOSS, NUM_EXAMPLES, PROBED
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ..aggregation.metric_spread import LOSS_METRIC, sensible, untested
from ..federation.update_observations import BIAS_UPDATE, UPDATE, UpdateObservations
from ..server_samples import ServerSamples
from .base import Layer, Outcome

_MOST_CLIENTS = 300  # whose updates are written down
_OVERHEAD = 1000  # bytes of a message beside the model


class Examination(Layer):
    """Log sizes, losses, agreement with labels, and sketches of the updates of all clients."""

    def __init__(self, inner: Strategy, config: RunConfig) -> None:
        super().__init__(inner)
        task = load_task(config.task_spec())
        needs = {UPDATE, BIAS_UPDATE} if has_output_bias(task.build_model()) else {UPDATE}
        self.config, self.rounds = config, config.num_server_rounds
        self.updates = UpdateObservations(frozenset(needs), config.seed)
        self.clean = ServerSamples.of_classes(config)
        self._facts: dict[str, Any] = {"clean-samples": len(task.server_data().validation)}
        self._columns: dict[str, list[Any]] = {}

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Examination":
        """Return the layer that a config describes."""
        return cls(inner, config)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let as many clients take part as the bytes allow."""
        most = self.config[Diagnosis].bytes
        if self.clean is not None:
            self._facts["clean-accuracy"] = self.clean.accuracy(from_record(arrays))
        if most and server_round == 1:
            size = _OVERHEAD + sum(array.nbytes for array in from_record(arrays).values())
            affordable = most // (size * (2 * self.rounds + 1))
            self.limit(max(1, min(affordable, len(list(grid.get_node_ids())))))
        return super().configure_train(server_round, arrays, config, grid)

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Take out the records that only this layer requested; read the rest."""
        assigned = self.federation.ledger.of(replies)
        sent = [None if each is None else each.model for each in assigned]
        claims = {LOSS: LOSS_METRIC, AGREEMENT: ACCURACY, PROBED: LOSS_METRIC}
        told: dict[str, list[Any]] = {
            name: _sensible(replies.take_metric(name), m) for name, m in claims.items()
        }
        told |= {name: self.updates.read(name, sent, replies) for name in self.updates.names}
        if BIAS_UPDATE in told:  # of a single step, it shows the labels
            probed = told[PROBED] or [math.nan] * len(replies)
            rows = zip(told[BIAS_UPDATE], probed, strict=True)
            told[BIAS_UPDATE] = [None if math.isnan(of) else row for row, of in rows]
        told[NUM_EXAMPLES] = list(replies.metrics[NUM_EXAMPLES])
        self._add({"client": list(self.federation.keys(replies.nodes)), **told})
        return replies

    def _add(self, columns: Mapping[str, list[Any] | None]) -> None:
        unknown = [None] * len(columns["client"] or ())
        for name, column in columns.items():
            self._columns.setdefault(name, []).extend(column or unknown)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate, then write down what was seen."""
        self._columns = {}
        result = super().aggregate_train(server_round, replies)
        times = self.federation.times.seconds(self._columns.get("client", []))
        self._columns["seconds"] = times.tolist()
        self._note(server_round)
        return result

    def _note(self, server_round: int) -> None:
        for name in {UPDATE, BIAS_UPDATE}.intersection(self._columns):
            self._columns[name] = self._columns[name][:_MOST_CLIENTS]
        if not any(self._columns.get(BIAS_UPDATE, ())):
            self._columns.pop(BIAS_UPDATE, None)
        columns = {name: [_short(v) for v in column] for name, column in self._columns.items()}
        clients = [str(key) for key in columns.pop("client", [])]
        self.federation.note(
            Examined(round=server_round, clients=clients, columns=columns, facts=self._facts)
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients once, at the end: finding the best model for each takes some epochs."""
        if server_round < self.rounds:
            return []
        config[AS_IT_CAME] = True
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Write down what each client's own model gains."""
        self._columns, metric = {}, self.federation.metrics[0]

        def look(table: Replies) -> Replies:
            table = table.without(untested(table))
            if not len(table):
                return table
            keys = list(self.federation.keys(table.nodes))
            served = _sensible(table.metrics.get(metric.name), metric)
            before = _sensible(table.take_metric(AS_IT_CAME), metric)
            self._add({"client": keys, AS_IT_CAME: before, "served": served})
            return table

        stream = ReplyStream(tables_in(replies)).through(look)
        result = super().aggregate_evaluate(server_round, stream)
        self._note(server_round)
        return result


def _sensible(column: list[Any] | None, metric: Metric) -> list[float]:
    """Return plausible reports, and NaN for the rest: no client may spoil a diagnosis."""
    return [sensible(value, metric) for value in column or ()]


def _short(value: Any) -> Any:
    """Return numbers with four digits: more would be noise."""
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    known = isinstance(value, int | float) and np.isfinite(value)
    return float(f"{value:.4g}") if known else value if isinstance(value, str) else None
