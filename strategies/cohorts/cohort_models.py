"""The cohorts of a run: each has a model, a strategy and a round counter of its own."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord

from ...core.log.events import CohortFailed
from ...core.wire.arrays import from_record, to_record
from ...core.wire.keys import NUM_EXAMPLES
from ...core.wire.replies import Replies, ReplyStream
from ..aggregation.running_mean import RunningMean
from ..layers.base import Layer, load_strategy_state, strategy_state, unchanged_on_failure
from .base import Regrouping
from .sharing import forget_model, with_common_body, with_shared_changes

_log = logging.getLogger("forager")


class CohortModels:
    """What each cohort has to itself, by the cohort's name, and what they share."""

    def __init__(
        self,
        make_inner: Callable[[], Layer],
        *,
        own_arrays: frozenset[str] = frozenset(),
        share_changes: bool = False,
    ) -> None:
        self.make_inner = make_inner
        self.first = make_inner()
        self.own_arrays = own_arrays
        self.share_changes = share_changes
        self.models: dict[str, ArrayRecord] = {}
        self.strategies: dict[str, Layer] = {}
        self.rounds: dict[str, int] = {}

    def start(self, models: Mapping[str, ArrayRecord]) -> None:
        """Begin with these cohorts, or leave those that are there."""
        if self.models:
            return
        self.models = dict(models)
        first, *others = self.models
        self.strategies = {first: self.first} | {name: self.make_inner() for name in others}
        self.rounds = dict.fromkeys(self.models, 0)
        if self.own_arrays:  # they may start from different weights
            self.share(self.models, {first: 1.0}, part=1.0)

    def aggregate(
        self, server_round: int, cohort: str, replies: ReplyStream
    ) -> MetricRecord | None:
        """Aggregate one cohort and return its metrics; None if it fails and stays as it was."""
        strategy = self.strategies[cohort]
        try:
            with strategy.federation.in_cohort(cohort), unchanged_on_failure(strategy):
                arrays, metrics = strategy.aggregate_train(server_round, replies)
                if arrays is None:
                    raise ValueError("too few replies could be used")
                if not all(np.isfinite(array).all() for array in from_record(arrays).values()):
                    raise ValueError("the aggregated model is not finite")
        except Exception as error:  # whatever it is, the other cohorts continue
            _log.warning("cohort %s repeats its round: %s", cohort, error)
            event = CohortFailed(round=server_round, cohort=cohort, reason=str(error))
            strategy.federation.note(event)
            return None
        self.models[cohort] = arrays
        self.rounds[cohort] += 1
        return MetricRecord() if metrics is None else metrics

    @property
    def share_something(self) -> bool:
        """Whether what one cohort learns changes the models of others."""
        return bool(self.own_arrays) or self.share_changes

    def share(
        self, before: Mapping[str, ArrayRecord], weights: Mapping[str, float], part: float
    ) -> None:
        """Give cohorts what they have in common: a body, or what all clients learned."""
        if not any(weights.values()):
            return
        if self.own_arrays:
            self.models = with_common_body(self.models, weights, self.own_arrays)
        elif self.share_changes and len(before) > 1:
            own = min(1.0, part) ** 2
            self.models = with_shared_changes(before, self.models, weights, own)
        else:
            return
        for strategy in self.strategies.values():
            forget_model(strategy.wrapped())

    def regroup(self, regrouping: Regrouping) -> None:
        """Replace the cohorts; each new one starts from the mean of those it came from."""
        models, strategies, rounds = self.models, self.strategies, self.rounds
        self.models, self.strategies, self.rounds = {}, {}, {}
        states: dict[str, Any] = {}
        for cohort, origins in regrouping.items():
            mean = RunningMean()
            for origin, weight in origins.items():
                mean.add(from_record(models[origin]), {}, weight=weight)
            main = max(origins, key=lambda origin: origins[origin])
            self.models[cohort] = to_record(mean.arrays)
            self.rounds[cohort] = rounds[main]
            if cohort in strategies:
                self.strategies[cohort] = strategies[cohort]
            else:
                if main not in states:
                    states[main] = strategy_state(strategies[main])
                self._add_strategy(cohort, states[main])

    def start_from_own(
        self, trained: Iterable[tuple[Sequence[str], Replies]], where: Mapping[str, str]
    ) -> None:
        """Let parts of a cohort (``where``) start from what their members have just trained."""
        means: dict[str, RunningMean] = defaultdict(RunningMean)
        for keys, table in trained:
            for row, (key, count) in enumerate(zip(keys, table.metrics[NUM_EXAMPLES], strict=True)):
                if key in where and count > 0:
                    model = {name: stack[row] for name, stack in table.arrays.items()}
                    means[where[key]].add(model, {}, weight=float(count))
        for cohort, mean in means.items():
            arrays = mean.arrays
            if self.own_arrays:  # the body stays everyone's
                own = {name: arrays[name] for name in self.own_arrays}
                arrays = from_record(self.models[cohort]) | own
            self.models[cohort] = to_record(arrays)

    def mean(self, sizes: Mapping[str, int]) -> ArrayRecord:
        """Return the mean of the cohorts' models by their members: one model for all, if any."""
        if len(self.models) == 1:
            return next(iter(self.models.values()))
        mean = RunningMean()
        for arrays, share in self.shares(sizes).values():
            mean.add(from_record(arrays), {}, weight=max(share, 1e-9))
        return to_record(mean.arrays)

    def shares(self, sizes: Mapping[str, int]) -> dict[str, tuple[ArrayRecord, float]]:
        """Return every cohort's model with the share of the clients that use it."""
        total = sum(sizes[cohort] for cohort in self.models) or 1
        return {cohort: (arrays, sizes[cohort] / total) for cohort, arrays in self.models.items()}

    def state(self) -> list[dict[str, Any]]:
        """Return every cohort's model, strategy and counter."""
        return [
            {
                "name": cohort,
                "model": from_record(self.models[cohort]),
                "strategy": strategy_state(self.strategies[cohort]),
                "rounds": self.rounds[cohort],
            }
            for cohort in self.models
        ]

    def load(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Restore what :meth:`state` returned."""
        self.models, self.strategies, self.rounds = {}, {}, {}
        for cohort in state:
            name = str(cohort["name"])
            self.models[name] = to_record(cohort["model"])
            self._add_strategy(name, cohort["strategy"])
            self.rounds[name] = int(cohort["rounds"])

    def _add_strategy(self, cohort: str, state: Any) -> None:
        self.strategies[cohort] = self.make_inner()
        load_strategy_state(self.strategies[cohort], state)
