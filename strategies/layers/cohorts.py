"""With whom: cohorts of clients, each with its own model, strategy and round counter."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from time import perf_counter
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.log.events import CohortsEvaluated, CohortsTrained, Regrouped
from ...core.methods.aggregators import Aggregation
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.cohort import CohortMethod, CohortSettings
from ...core.wire.keys import NUM_EXAMPLES
from ...core.wire.records import entries, filled
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ...core.wire.requests import Requests
from ...selectors.cohorts.matching import equal_shares, proportional_shares
from ..aggregation.metric_spread import metric_spread
from ..aggregation.running_mean import RunningMean
from ..cohorts.base import MEAN, CohortRule, CohortSignals, Regrouping, Scene, asking
from ..cohorts.cohort_models import CohortModels
from ..cohorts.sharing import head_names
from ..cohorts.split_testing import SplitTestRule
from ..cohorts.update_sketches import Signal, signal_of
from ..federation.grids import GridView
from ..federation.roster import key_order
from ..federation.waiting_replies import WaitingReplies
from .base import Layer, Models, Outcome

_log = logging.getLogger("forager")


class Cohorts(Layer):
    """Several strategies side by side, each with its own view of the grid and its own model."""

    def __init__(
        self,
        make_inner: Callable[[], Layer],
        rule: CohortRule,
        signal: Signal,
        *,
        count: int = 0,  # clients per round in all cohorts; 0 uses the fraction instead
        fraction: float = 1.0,  # of the connected clients, that train per round
        own_start: bool = False,  # parts of a split start from what their members trained
        own_arrays: frozenset[str] = frozenset(),  # each cohort's head, if they share a body
        equal_weights: bool = False,  # of clients in what is shared
        share_changes: bool = False,  # cohorts learn from each other, if few take part
    ) -> None:
        self.cohorts = CohortModels(make_inner, own_arrays=own_arrays, share_changes=share_changes)
        super().__init__(self.cohorts.first)
        self.rule = rule
        self.signal = signal
        self.count = count
        self.fraction = fraction
        self.own_start = own_start
        self.equal_weights = equal_weights
        self.own_records = (*rule.own_records, *signal.own_records)
        self._wanted: int | None = None
        self.members: dict[str, str] = {}  # the cohort of each client
        self._noted: dict[str, str] = {}  # what the journal knows of them

    @classmethod
    def of_run(cls, make_inner: Callable[[], Layer], config: RunConfig) -> "Cohorts":
        """Return the layer that a config describes, around the rule of its cohorts."""
        method = methods("cohorts")[config.cohorts]
        assert isinstance(method, CohortMethod)
        count, fraction = config.participation()
        rule: CohortRule = load(method.rule)(config)
        plain = (config.aggregator, config.uplink, config.privacy) == ("fedavg", "dense", "none")
        given = config[Aggregation]
        shared = config[CohortSettings].shared(config.cohorts, config.similarity, given.buffer)
        return cls(
            make_inner,
            rule,
            signal_of(config),
            count=count,
            fraction=fraction,
            own_start=plain and isinstance(rule, SplitTestRule) and not given.learning_rate,
            own_arrays=head_names(config),
            share_changes=shared == "changes",
            equal_weights=config.weighting == "uniform" or config.privacy == "central-dp",
        )

    @property
    def leaf_models(self) -> dict[str, ArrayRecord]:
        """The model of each cohort."""
        return self.cohorts.models

    def wrapped(self) -> list[Strategy]:
        """Return Flower's strategies of all cohorts."""
        return [
            part for strategy in self.cohorts.strategies.values() for part in strategy.wrapped()
        ]

    def replies_wanted(self) -> int | None:
        """Return how many replies are enough for all cohorts together."""
        return self._wanted

    def models(self, arrays: ArrayRecord) -> Models:
        """Return every cohort's model and the share of the clients that use it."""
        return self.cohorts.shares(self._sizes()) or super().models(arrays)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Place clients, then let every cohort's strategy choose and configure its own."""
        self._start(arrays)
        nodes = self.federation.nodes(grid)
        scene = self._scene(server_round, nodes, grid, training=True)
        regrouping = self.rule.regroup(scene)
        if regrouping is not None:
            self._regroup(server_round, regrouping)
            scene = self._scene(server_round, nodes, grid, training=True)
        views = self._views(nodes, self.rule.place(scene))
        busy = len(self.federation.busy)
        total = self.count or max(1, round(self.fraction * (len(nodes) + busy)))
        total = max(1, total - busy)
        parts: list[Requests] = []
        shares = self._participants(server_round, total, views)
        # Where everyone is to train, also in a cohort that is larger than others.
        everyone = not self.count and self.fraction == 1.0
        for cohort, model in self.leaf_models.items():
            strategy, own_config = self.cohorts.strategies[cohort], filled(ConfigRecord, {**config})
            own: Requests | None = None
            if cohort in shares:
                strategy.limit(len(views[cohort]) if everyone else shares[cohort])
                view = GridView(grid, views[cohort])
                with self.federation.in_cohort(cohort):
                    asked = strategy.configure_train(server_round, model, own_config, view)
                own = Requests.of(asked)
            if own is None:  # replies to earlier rounds may come all the same
                strategy.begin(server_round, model, grid)
            else:
                parts.append(own)
        self.signal.begin()
        self._wanted = sum(
            self.cohorts.strategies[cohort].replies_wanted() or 0 for cohort in shares
        )
        requests = Requests.joined(parts)
        if requests is None:
            return []
        self.rule.guide(requests, self.federation.keys(requests.nodes))
        return requests

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Aggregate every cohort by itself, then let the rule look at what the clients did."""
        with closing(WaitingReplies(self.federation.folder)) as waiting:
            return self._aggregated(server_round, tables_in(replies), waiting)

    def _aggregated(
        self, server_round: int, replies: Iterable[Replies], waiting: WaitingReplies
    ) -> Outcome:
        weights: dict[str, float] = defaultdict(float)
        counts, seconds = Counter[str](), 0.0
        for table in replies:
            started = perf_counter()
            for cohort, own in self._sorted(server_round, table).items():
                waiting.add(cohort, own)
                counts[cohort] += len(own)
                weights[cohort] += self._weight(own)
            seconds += perf_counter() - started
        metrics = RunningMean()
        before, done = dict(self.leaf_models), []
        for cohort in waiting:
            tables = ReplyStream(waiting.of(cohort))
            own_metrics = self.cohorts.aggregate(server_round, cohort, tables)
            if own_metrics is not None:
                metrics.add({}, dict(entries(own_metrics)), weight=counts[cohort])
                done.append(cohort)
        if not done:
            return None, None
        part = sum(counts.values()) / max(1, len(self.members))
        self.cohorts.share(before, {cohort: weights[cohort] for cohort in done}, part)
        started = perf_counter()
        seen = {cohort: self.signal.take(cohort) for cohort in done}
        regrouping = self.rule.learn(server_round, self.cohorts.rounds, seen)
        seconds += perf_counter() - started
        if regrouping is not None:
            self._regroup(server_round, regrouping)
            split = seen.keys() - regrouping.keys() if self.own_start else set[str]()
            for cohort in split:
                where = self.rule.settled(dict.fromkeys(seen[cohort].keys, ""))
                named = ((self.federation.keys(t.nodes), t) for t in waiting.of(cohort))
                self.cohorts.start_from_own(named, where)
        self._note(server_round, seen, seconds)
        totals = MetricRecord({**metrics.metrics, NUM_EXAMPLES: metrics.weight})
        return self.cohorts.mean(self._sizes()), totals

    def _sorted(self, server_round: int, table: Replies) -> dict[str, Replies]:
        """Return the rows of each cohort, once the rule has read them."""
        cohorts, wrong = list[str](), dict[int, str]()
        assigned = self.federation.ledger.of(table)
        keys = self.federation.keys(table.nodes)
        for row, (key, assignment) in enumerate(zip(keys, assigned, strict=True)):
            if assignment is None or assignment.cohort is None:
                wrong[row] = "no cohort asked for it"
            cohorts.append(self._now(key, assignment.cohort) if assignment else "")
        wrong |= self.rule.hear(keys, table, [a.model if a else None for a in assigned], wrong)
        sent = [None if a is None or row in wrong else a.model for row, a in enumerate(assigned)]
        signals, more = self.signal.of(sent, table)
        wrong |= more
        for row, reason in wrong.items():
            self.federation.set_aside(server_round, table.nodes[row], reason)
        rows: dict[str, list[int]] = defaultdict(list)
        for row, (key, cohort) in enumerate(zip(keys, cohorts, strict=True)):
            if row not in wrong:
                rows[cohort].append(row)
                self.signal.add(cohort, key, signals[row])
        return {cohort: table.select(own) for cohort, own in rows.items()}

    def _now(self, key: str, trained_for: str | None) -> str:
        """Return the cohort that an update counts in, also if its own was split meanwhile."""
        cohort = self.members.get(key) if trained_for not in self.leaf_models else trained_for
        if cohort in self.leaf_models:
            return cohort
        parts = [name for name in self.leaf_models if name.startswith(f"{trained_for}.")]
        return max(parts or self.leaf_models, key=self._sizes().__getitem__)

    def _weight(self, table: Replies) -> float:
        """Return how much replies count in what cohorts share."""
        return float(len(table) if self.equal_weights else sum(table.metrics[NUM_EXAMPLES]))

    def hear(self, server_round: int, replies: Replies) -> None:
        """Learn from late replies whose cohorts are still there; a split cohort's model is gone."""
        for row, assignment in enumerate(self.federation.ledger.of(replies)):
            cohort = None if assignment is None else assignment.cohort
            if cohort is None or assignment is None or cohort not in self.cohorts.strategies:
                continue
            late = replies.select([row])
            if self.signal.outlives_its_round:
                signals, _ = self.signal.of([assignment.model], late)
                key = self.federation.key(replies.nodes[row])
                self.rule.hear_late(key, cohort, assignment.round, signals[0])
            with self.federation.in_cohort(cohort):
                self.cohorts.strategies[cohort].hear(server_round, late)

    def _participants(
        self, server_round: int, total: int, views: Mapping[str, Sequence[int]]
    ) -> dict[str, int]:
        """Return how many clients of each cohort train: equally many, or by its size if they share.

        What all clients learn must not depend more on clients of small cohorts than on others.
        """
        ready = [cohort for cohort in self.leaf_models if views[cohort]]
        if not ready:
            return {}
        if self.federation.busy and total < len(ready):  # others still train: they take turns
            shares = equal_shares(total, len(ready), turn=server_round)
        elif not self.cohorts.share_something:
            shares = [max(1, share) for share in equal_shares(total, len(ready))]
        else:
            sizes = [len(views[cohort]) for cohort in ready]
            shares = proportional_shares(total, sizes, turn=server_round)
        return {cohort: n for cohort, n in zip(ready, shares, strict=True) if n}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let clients evaluate the model of the cohort they fit best."""
        self._start(arrays)
        if not self.evaluates():
            return []
        nodes = self.federation.nodes(grid)  # with those that came while others trained
        scene = self._scene(server_round, nodes, grid, training=False)
        placed = self.rule.place(scene)
        views = self._views(nodes, placed)
        parts: list[Requests | None] = []
        for cohort, own in views.items():
            if own:
                own_config = filled(ConfigRecord, dict(entries(config)))
                with self.federation.in_cohort(cohort):
                    asked = self.cohorts.strategies[cohort].configure_evaluate(
                        server_round, self.leaf_models[cohort], own_config, GridView(grid, own)
                    )
                parts.append(Requests.of(asked))
        unknown = [node for node, cohort in zip(nodes, placed, strict=True) if cohort == MEAN]
        if unknown:
            first = next(iter(self.cohorts.strategies.values()))
            mean, view = self.cohorts.mean(self._sizes()), GridView(grid, unknown)
            asked = first.configure_evaluate(server_round, mean, config, view)
            parts.append(Requests.of(asked))
        return Requests.joined([part for part in parts if part is not None]) or []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Aggregate as one, and log how each cohort's model does on its clients' data."""
        tables = list(tables_in(replies))
        found: dict[str, list[MetricRecord]] = defaultdict(list)
        for table in tables:
            for row in table.rows():
                cohort = self.members.get(self.federation.key(row.node), "")
                found[cohort].append(filled(MetricRecord, row.metrics))
        main = self.federation.metrics[0]
        means = {}
        for cohort in sorted(found.keys() - {""}):
            told = metric_spread(found[cohort], [main])
            if told is not None and told.spread:
                means[cohort] = told.spread[main.name].mean
        self.federation.note(CohortsEvaluated(round=server_round, means=means))
        return super().aggregate_evaluate(server_round, ReplyStream(tables))

    def collected(self) -> dict[str, Any]:
        """Return data from clients that a run may keep for analysis."""
        return self.rule.collected()

    def _start(self, arrays: ArrayRecord) -> None:
        if not self.leaf_models:
            self.cohorts.start(self.rule.start(arrays))

    def _scene(
        self, server_round: int, nodes: Sequence[int], grid: Grid, *, training: bool
    ) -> Scene:
        keys = list(self.federation.keys(nodes))
        ask = asking(self.federation, grid, server_round, dict(zip(keys, nodes, strict=True)))
        models, note = self.leaf_models, self.federation.note
        busy = sorted(self.federation.keys(self.federation.busy), key=key_order)
        return Scene(server_round, keys, models, self.cohorts.rounds, training, ask, note, busy)

    def _views(self, nodes: Sequence[int], cohorts: Sequence[str]) -> dict[str, list[int]]:
        views: dict[str, list[int]] = {cohort: [] for cohort in self.leaf_models}
        nameless = self.federation.roster.nameless
        for node, key, cohort in zip(nodes, self.federation.keys(nodes), cohorts, strict=True):
            if cohort in views:  # some may have no place
                views[cohort].append(node)
                self.members.pop(nameless(node), None)  # it may have sent its name since
                self.members[key] = cohort
        return views

    def _regroup(self, server_round: int, regrouping: Regrouping) -> None:
        self.cohorts.regroup(regrouping)
        self.members = self.rule.settled(self.members)  # also of those who still train
        self.federation.note(Regrouped(round=server_round, cohorts=regrouping))
        _log.info("round %d: cohorts are now %s", server_round, ", ".join(self.leaf_models))

    def _sizes(self) -> Counter[str]:
        return Counter(self.members.values())

    def _note(self, server_round: int, seen: Mapping[str, CohortSignals], seconds: float) -> None:
        belong = self.rule.settled(self.members)
        moved = {key: name for key, name in belong.items() if self._noted.get(key) != name}
        self.members, self._noted = belong, dict(belong)
        sizes = Counter(belong.values())
        self.federation.note(
            CohortsTrained(
                round=server_round,
                members={cohort: sizes[cohort] for cohort in self.leaf_models},
                participants={cohort: len(seen[cohort].keys) for cohort in seen},
                rounds=dict(self.cohorts.rounds),
                moved=moved,
                seconds=seconds,
                **self.rule.report(),
            )
        )

    def state_dict(self) -> dict[str, Any]:
        """Return every cohort's model, strategy and counter, and what the rule remembers."""
        rule = self.rule.state_dict()
        return {"cohorts": self.cohorts.state(), "members": self.members, "rule": rule}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; refused if rule and models do not fit."""
        self.rule.load_state_dict(state["rule"])
        names, known = [str(cohort["name"]) for cohort in state["cohorts"]], self.rule.leaves()
        if names and known is not None and set(names) != set(known):
            raise ValueError(
                f"checkpoint: models of {sorted(names)}, but the tree has {sorted(known)}"
            )
        self.cohorts.load(state["cohorts"])
        self.members = dict(state["members"])
