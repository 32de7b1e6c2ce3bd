"""With whom: cohorts of clients, each with its own model, strategy and round counter."""

import copy
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import CONFIG, NUM_EXAMPLES, ROUND
from ..core.wire.records import attach, entries, records_of
from ..selectors.cohorts.matching import equal_shares
from .accuracy_spread import accuracy_spread
from .cohort_rules.base import CohortRule, Observed, Regrouping, Scene
from .flower_aggregator import RunningMean
from .grids import GridView
from .layer import (
    Layer,
    attach_journal,
    load_strategy_state,
    replies_wanted,
    strategy_state,
    unchanged_on_failure,
    walk,
)
from .roster import Roster
from .selection import Selection
from .signals import Signal

_log = logging.getLogger("forager")


class Cohorts(Layer):
    """Several strategies side by side, each with its own view of the grid and its own model.

    A rule says which cohort a client belongs to and when cohorts change. Participants of a round
    are shared out equally among cohorts, unless everyone takes part. A cohort without clients
    waits; one whose aggregation fails keeps its model and tries again in the next round. Neither
    holds the others up.

    Parameters
    ----------
    make_inner : callable
        Returns a new strategy for a cohort, with a :class:`Selection` in it.
    rule : CohortRule
        Who belongs where.
    signal : Signal
        What of a client's reply the rule compares.
    roster : Roster
        Stable names of the clients.
    count : int (default: 0)
        Clients a round in all cohorts together; 0 takes ``fraction`` instead.
    fraction : float (default: 1.0)
        Share of the connected clients that train in a round.
    timeout : float (default: 60.0)
        Seconds to wait for answers to a rule's questions.
    """

    def __init__(
        self,
        make_inner: Callable[[], Strategy],
        rule: CohortRule,
        signal: Signal,
        roster: Roster,
        *,
        count: int = 0,
        fraction: float = 1.0,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(make_inner())
        self.make_inner = make_inner
        self.rule = rule
        self.signal = signal
        self.roster = roster
        self.count = count
        self.fraction = fraction
        self.timeout = timeout
        self.own_records = (*rule.own_records, *signal.own_records)
        self.wanted: int | None = None
        self.models: dict[str, ArrayRecord] = {}
        self.strategies: dict[str, Strategy] = {}
        self.rounds: dict[str, int] = {}
        self.members: dict[str, str] = {}  # the cohort of each client
        self._noted: dict[str, str] = {}  # what the journal knows of them
        self._where: dict[int, str] = {}  # the cohort of each node asked in this round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Place clients, then let every cohort's strategy choose and configure its own."""
        self._start(arrays)
        self.roster.identify(grid, self.timeout)
        nodes = self.roster.in_order(grid.get_node_ids())
        scene = self._scene(server_round, nodes, grid, training=True)
        regrouping = self.rule.regroup(scene)
        if regrouping is not None:
            self._regroup(server_round, regrouping)
            scene = self._scene(server_round, nodes, grid, training=True)
        views = self._views(nodes, self.rule.place(scene))
        total = self.count or max(1, round(self.fraction * len(nodes)))
        messages: list[Message] = []
        self._where = {}
        ready = [cohort for cohort in self.models if views[cohort]]
        for cohort, share in zip(ready, equal_shares(total, max(1, len(ready))), strict=False):
            self._attach_journal(cohort)
            # Where everyone is to train, also in a cohort that is larger than others.
            everyone = not self.count and self.fraction == 1.0
            self._selection(cohort).count = len(views[cohort]) if everyone else max(1, share)
            view = GridView(grid, views[cohort])
            own_config = ConfigRecord(dict(config))
            messages += self.strategies[cohort].configure_train(
                server_round, self.models[cohort], own_config, view
            )
            for message in messages[len(self._where) :]:
                self._where[message.metadata.dst_node_id] = cohort
        for message in messages:
            key = self.roster.key(message.metadata.dst_node_id)
            for name, record in self.rule.guidance(key).items():
                attach(message, name, record)
        self.signal.sent(messages)
        self.wanted = sum(replies_wanted(self.strategies[cohort]) or 0 for cohort in ready)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate every cohort by itself, then let the rule look at what the clients did."""
        groups: dict[str, list[Message]] = defaultdict(list)
        started, seconds = perf_counter(), 0.0
        for reply in replies:
            started = perf_counter()
            node = reply.metadata.src_node_id
            key = self.roster.key(node)
            self.rule.hear(key, reply, self.models[self._where[node]])
            if self.signal.add(self._where[node], key, reply):
                groups[self._where[node]].append(reply)
            seconds += perf_counter() - started
        metrics = RunningMean()
        done = [
            cohort
            for cohort, members in groups.items()
            if self._aggregate_cohort(server_round, cohort, members, metrics)
        ]
        if not metrics.weight:
            return None, None
        started = perf_counter()
        seen = {cohort: self.signal.take(cohort) for cohort in done}
        regrouping = self.rule.learn(server_round, self.rounds, seen)
        seconds += perf_counter() - started
        if regrouping is not None:
            self._regroup(server_round, regrouping)
        self._note(server_round, seen, seconds)
        totals = MetricRecord({**metrics.metrics, NUM_EXAMPLES: metrics.weight})
        return self._mean_model(), totals

    def _aggregate_cohort(
        self, server_round: int, cohort: str, replies: list[Message], metrics: RunningMean
    ) -> bool:
        """Aggregate one cohort; False if that fails, and then it alone stays as it was."""
        strategy, count = self.strategies[cohort], len(replies)
        try:
            with unchanged_on_failure(strategy):
                arrays, own = strategy.aggregate_train(server_round, replies)
                if arrays is None:
                    raise ValueError("too few replies could be used")
                if not all(np.isfinite(array).all() for array in from_record(arrays).values()):
                    raise ValueError("the aggregated model is not finite")
        except Exception as error:  # whatever it is, the other cohorts go on
            _log.warning("cohort %s repeats its round: %s", cohort, error)
            self.journal("cohort-failed", round=server_round, cohort=cohort, reason=str(error))
            return False
        self.models[cohort] = arrays
        self.rounds[cohort] += 1
        metrics.add({}, dict(entries(own)) if own is not None else {}, weight=count)
        return True

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let clients evaluate the model of the cohort they fit best."""
        self._start(arrays)
        if not self._selection(next(iter(self.strategies))).fraction_evaluate:
            return []
        self.roster.identify(grid, self.timeout)  # those that came while others trained
        nodes = self.roster.in_order(grid.get_node_ids())
        scene = self._scene(server_round, nodes, grid, training=False)
        views = self._views(nodes, self.rule.place(scene))
        messages: list[Message] = []
        for cohort, own in views.items():
            if own:
                self._attach_journal(cohort)
                own_config = ConfigRecord(dict(config))
                messages += self.strategies[cohort].configure_evaluate(
                    server_round, self.models[cohort], own_config, GridView(grid, own)
                )
        return messages

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate as one, and write down how each cohort's model does on its clients' data."""
        replies = list(replies)
        found: dict[str, list[MetricRecord]] = defaultdict(list)
        for reply in replies:
            cohort = self.members.get(self.roster.key(reply.metadata.src_node_id), "")
            found[cohort] += records_of(reply.content, MetricRecord)[:1]
        spreads = {cohort: accuracy_spread(metrics) for cohort, metrics in found.items() if cohort}
        means = {cohort: s["accuracy-mean"] for cohort, s in sorted(spreads.items()) if s}
        self.journal("cohorts-evaluated", round=server_round, accuracy=means)
        return super().aggregate_evaluate(server_round, replies)

    def models_to_evaluate(self) -> dict[str, tuple[ArrayRecord, float]]:
        """Return every cohort's model and the share of the clients that use it."""
        sizes = Counter(self.members.values())
        total = sum(sizes[cohort] for cohort in self.models) or 1
        return {cohort: (arrays, sizes[cohort] / total) for cohort, arrays in self.models.items()}

    def collected(self) -> dict[str, Any]:
        """Return what clients have sent that a run may keep for analysis."""
        return self.rule.collected()

    def _start(self, arrays: ArrayRecord) -> None:
        if not self.models:
            self.models = dict(self.rule.start(arrays))
            self.strategies = {cohort: self.make_inner() for cohort in self.models}
            self.rounds = dict.fromkeys(self.models, 0)

    def _scene(
        self, server_round: int, nodes: Sequence[int], grid: Grid, *, training: bool
    ) -> Scene:
        keys = [self.roster.key(node) for node in nodes]
        ask = partial(self._ask, grid, dict(zip(keys, nodes, strict=True)), server_round)
        return Scene(server_round, keys, self.models, self.rounds, training, ask, self.journal)

    def _ask(
        self,
        grid: Grid,
        nodes: Mapping[str, int],
        server_round: int,
        keys: Sequence[str],
        kind: str,
        models: Mapping[str, ArrayRecord],
        settings: Mapping[str, int | str],
    ) -> dict[str, Message]:
        content = RecordDict({**models, CONFIG: ConfigRecord({ROUND: server_round, **settings})})
        questions = [Message(content, dst_node_id=nodes[key], message_type=kind) for key in keys]
        replies = grid.send_and_receive(questions, timeout=self.timeout)
        sound = [reply for reply in replies if not reply.has_error()]
        return {self.roster.key(reply.metadata.src_node_id): reply for reply in sound}

    def _views(self, nodes: Sequence[int], cohorts: Sequence[str]) -> dict[str, list[int]]:
        views: dict[str, list[int]] = {cohort: [] for cohort in self.models}
        for node, cohort in zip(nodes, cohorts, strict=True):
            if cohort:  # some may have no place
                views[cohort].append(node)
                self.members.pop(self.roster.nameless(node), None)  # it has told its name since
                self.members[self.roster.key(node)] = cohort
        return views

    def _selection(self, cohort: str) -> Selection:
        return next(p for p in walk(self.strategies[cohort]) if isinstance(p, Selection))

    def _attach_journal(self, cohort: str) -> None:
        attach_journal(self.strategies[cohort], partial(self.journal, cohort=cohort))

    def _regroup(self, server_round: int, regrouping: Regrouping) -> None:
        """Replace the cohorts; each new one starts from the mean of those it came from."""
        old_models, old_strategies, old_rounds = self.models, self.strategies, self.rounds
        self.models, self.strategies, self.rounds = {}, {}, {}
        for cohort, origins in regrouping.items():
            mean = RunningMean()
            for origin, weight in origins.items():
                mean.add(from_record(old_models[origin]), {}, weight=weight)
            main = max(origins, key=lambda origin: origins[origin])
            self.models[cohort] = to_record(mean.arrays)
            self.rounds[cohort] = old_rounds[main]
            if cohort in old_strategies:
                self.strategies[cohort] = old_strategies[cohort]
            else:
                self.strategies[cohort] = self.make_inner()
                state = copy.deepcopy(strategy_state(old_strategies[main]))
                load_strategy_state(self.strategies[cohort], state)
        self.journal("regrouped", round=server_round, cohorts=regrouping)
        _log.info("round %d: cohorts are now %s", server_round, ", ".join(self.models))

    def _mean_model(self) -> ArrayRecord:
        """Return the mean of the cohorts' models by their members: one model for all, if any."""
        if len(self.models) == 1:
            return next(iter(self.models.values()))
        mean = RunningMean()
        for arrays, share in self.models_to_evaluate().values():
            mean.add(from_record(arrays), {}, weight=max(share, 1e-9))
        return to_record(mean.arrays)

    def _note(self, server_round: int, seen: Mapping[str, Observed], seconds: float) -> None:
        belong = self.rule.settled(self.members)
        moved = {key: name for key, name in belong.items() if self._noted.get(key) != name}
        self.members, self._noted = belong, dict(belong)
        sizes = Counter(belong.values())
        self.journal(
            "cohorts",
            round=server_round,
            members={cohort: sizes[cohort] for cohort in self.models},
            participants={cohort: len(seen[cohort].keys) for cohort in seen},
            rounds=dict(self.rounds),
            moved=moved,
            seconds=seconds,
            **self.rule.report(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return every cohort's model, strategy and counter, and what the rule remembers."""
        cohorts = [
            {
                "name": cohort,
                "model": from_record(self.models[cohort]),
                "strategy": strategy_state(self.strategies[cohort]),
                "rounds": self.rounds[cohort],
            }
            for cohort in self.models
        ]
        return {"cohorts": cohorts, "members": self.members, "rule": self.rule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned; refused if rule and models do not fit."""
        self.rule.load_state_dict(state["rule"])
        names, known = [str(cohort["name"]) for cohort in state["cohorts"]], self.rule.leaves()
        if names and known is not None and set(names) != set(known):
            raise ValueError(
                f"checkpoint: models of {sorted(names)}, but the tree has {sorted(known)}"
            )
        self.models, self.strategies, self.rounds = {}, {}, {}
        for cohort in state["cohorts"]:
            name = str(cohort["name"])
            self.models[name] = to_record(cohort["model"])
            self.strategies[name] = self.make_inner()
            load_strategy_state(self.strategies[name], cohort["strategy"])
            self.rounds[name] = int(cohort["rounds"])
        self.members = dict(state["members"])
