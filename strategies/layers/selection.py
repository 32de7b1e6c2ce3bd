"""Who trains: a selector picks clients, the strategy inside sees only those."""

import logging
from collections.abc import Iterable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.train_settings import local_steps, train_settings
from ...core.log.events import Selected
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.ios import HASHES
from ...core.methods.selector import Selector, Summary
from ...core.tasks import load_task
from ...core.wire.arrays import from_record
from ...core.wire.keys import LOSS, REFERENCE, SIMILARITY, WANTS
from ...core.wire.replies import Replies, ReplyStream, tables_in
from ...core.wire.requests import Requests
from ...selectors.client_selectors.base import ClientSelector
from ..federation.client_memory import ClientMemory
from ..federation.grids import GridView, all_node_ids
from ..federation.questions import Questions, encode_update
from .base import Layer, Outcome
from .candidates import CandidatePool, Participation, Pools

_log = logging.getLogger("forager")
_MOST_PASSED_OVER = 200  # clients that were not chosen, in an event


class NobodyTrained(RuntimeError):
    """Too many rounds in a row found nobody to train."""


class Selection(Layer):
    """Narrow the grid to the clients that a selector chooses."""

    remembers = ("_rng", "_evaluate_rng", "selector")

    def __init__(
        self,
        inner: Strategy,
        selector: ClientSelector,
        part: Participation | None = None,
        *,
        seed: int = 0,
        questions: Questions | None = None,
    ) -> None:
        super().__init__(inner)
        self.part = part or Participation()
        self.questions = questions or Questions()
        self._rng = np.random.default_rng([seed, 1])
        self._evaluate_rng = np.random.default_rng([seed, 2])
        self._empty = 0  # rounds in a row without anybody to train
        self._short_of = 0
        self._wanted: int | None = None  # replies that are enough for the round
        self._before: dict[str, NDArray[Any]] = {}
        self.use(selector)

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Selection":
        """Return the layer that a config describes, around the rule of its client selector."""
        method = methods("client-selector")[config.client_selector]
        assert isinstance(method, Selector)
        (count, fraction), asked = config.participation(), config[Summary]
        part = Participation(
            count=count,
            fraction=fraction,
            fraction_evaluate=config.fraction_evaluate,
            over_commit=config.round.over_commit,
            at_least=config.round.min_replies,
            at_most=config.clients.at_most,
        )
        questions = Questions(
            bounded=asked.form != "printed",
            labels=load_task(config.task_spec()).num_classes,
            hashes=HASHES,
            ride=asked.mode == "piggyback",
            ask_at_most=asked.ask_at_most,
            seed=config.seed,
            steps_of=partial(local_steps, train_settings(config, 1)),
        )
        rule = load(method.core)(**method.arguments(config))
        return cls(inner, rule, part, seed=config.seed, questions=questions)

    @property
    def memory(self) -> ClientMemory:
        """The memory of clients that all layers and cohorts share."""
        return self.federation.memory

    def use(self, selector: ClientSelector) -> None:
        """Choose by this rule from now on."""
        self.selector = selector
        self.pools = Pools(self.federation, selector, self.questions, self._rng)

    def limit(self, count: int) -> None:
        """Let the next round train this many clients."""
        self.part.count = count

    def replies_wanted(self) -> int | None:
        """Return how many replies are enough: fewer than were asked for, with over-commitment."""
        return self._wanted

    def evaluates(self) -> bool:
        """Return whether clients are asked to evaluate at all."""
        return self.part.fraction_evaluate > 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients and let the strategy inside configure them."""
        started, federation, part = perf_counter(), self.federation, self.part
        available = federation.in_view(grid)
        wanted = part.wanted(len(available))
        busy = len(federation.busy.intersection(available)) if federation.busy else 0
        if wanted <= busy > 0:  # as many train already
            return []
        wanted -= busy
        self._say_if_short(wanted, len(available))
        if len(available) <= busy:
            self._say_if_empty(server_round)
            return []
        nodes = federation.nodes(GridView(grid, available))
        likely = part.asked(federation, wanted, nodes, server_round)
        asked = min(len(available) - busy, likely)
        self._before = from_record(arrays)
        self.memory.begin(server_round)
        self.pools.claims.settle()
        eligible = part.eligible(federation, nodes, asked, server_round)
        pool = self.pools.gathered(eligible, asked, server_round, arrays, grid)
        picked = [pool.nodes[i] for i in self.selector.select(pool.candidates, asked, self._rng)]
        if pool.was_asked and not self.selector.takes_fewer:
            picked = self.pools.filled_up(picked, eligible, asked)
        self._wanted = min(wanted, len(picked))
        chosen = list(federation.keys(picked))
        others = self._passed_over(pool, chosen)
        self._note("train", server_round, len(nodes), chosen, perf_counter() - started, others)
        self.memory.round_passed(federation.keys(nodes), chosen, server_round)
        connected = all_node_ids(grid)
        if self.memory.crowded(len(connected)):
            self.memory.forget(set(federation.keys(connected)))
        if not chosen:
            self._say_if_empty(server_round)
            return []
        self._empty = 0
        if self.questions.ride and SIMILARITY in self.selector.needs:
            config[WANTS] = SIMILARITY
            if self.pools.update is not None:
                config[REFERENCE] = encode_update(self.pools.update)
        view = GridView(grid, federation.roster.in_order(picked))
        return self._in_order(super().configure_train(server_round, arrays, config, view))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the clients that evaluate."""
        if not self.evaluates():
            return []
        started = perf_counter()
        nodes = self.federation.nodes(grid)  # with those that came while others trained
        if not nodes:
            return []
        wanted = max(1, round(self.part.fraction_evaluate * len(nodes)))
        nodes = self.federation.awake(nodes, server_round) or nodes
        count = min(wanted, len(nodes))
        positions = np.sort(self._evaluate_rng.choice(len(nodes), count, replace=False))
        view = GridView(grid, [nodes[i] for i in positions])
        chosen = list(self.federation.keys(view.node_ids))
        self._note("evaluate", server_round, len(nodes), chosen, perf_counter() - started)
        return self._in_order(super().configure_evaluate(server_round, arrays, config, view))

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Learn from those who answered, then aggregate and remember the change."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None and SIMILARITY in self.selector.needs:
            after = from_record(arrays)
            self.pools.update = {name: after[name] - self._before[name] for name in self._before}
        return arrays, metrics

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Learn the names of clients, and their reports in training replies."""
        self.federation.roster.meet(replies)
        self.pools.claims.take(server_round, replies)
        return replies

    def hear(self, server_round: int, replies: Replies) -> None:
        """Learn from late replies, unless something newer is known.

        Their ages and the number of times that they were chosen stay as they are. CosAge's age
        grows "every round in which the client is not selected" (section III): it restarted when
        the client was chosen, and does not depend on when, or whether, an update is received.
        """
        self.pools.claims.take(server_round, replies)
        super().hear(server_round, replies)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Learn who answered, then aggregate."""

        def meet(table: Replies) -> Replies:
            self.federation.roster.meet(table)
            return table

        stream = ReplyStream(tables_in(replies)).through(meet)
        return super().aggregate_evaluate(server_round, stream)

    def _in_order(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Undo the shuffling of Flower's sampling: sums are taken in the same order every time."""
        requests = Requests.of(messages)
        if requests is None:
            return []
        rows = {node: row for row, node in enumerate(requests.nodes)}
        ordered = [rows[node] for node in self.federation.roster.in_order(rows)]
        return requests if ordered == sorted(ordered) else requests.select(ordered)

    def _say_if_empty(self, server_round: int) -> None:
        """Say that a round trains nobody, and fail if that has happened too often in a row."""
        self._empty += 1
        if self._empty == 1:
            _log.warning("round %d: no client is available to train", server_round)
        if self.part.empty_rounds and self._empty >= self.part.empty_rounds:
            raise NobodyTrained(f"{self._empty} rounds in a row trained nobody")

    def _say_if_short(self, wanted: int, available: int) -> None:
        if available < wanted != self._short_of:
            self._short_of = wanted
            _log.info(
                "%d clients per round were asked for, %d are available: training those",
                wanted,
                available,
            )

    def _passed_over(self, pool: CandidatePool, chosen: list[str]) -> list[str] | None:
        """Return who was compared with the chosen by similarity, for the report; None if many."""
        many = len(pool.candidates) > len(chosen) + _MOST_PASSED_OVER
        if many or SIMILARITY not in self.selector.needs or self.pools.update is None:
            return None
        taken = set(chosen)
        return [key for key in pool.candidates.keys if key not in taken]

    def _note(
        self,
        phase: str,
        server_round: int,
        available: int,
        chosen: list[str],
        seconds: float,
        others: list[str] | None = None,
    ) -> None:
        ages = scores = None
        if phase == "train":
            ages = self.memory.ages(chosen)
            for name in sorted(self.selector.needs & {SIMILARITY, LOSS}):
                scores = self.memory.values(chosen, name).tolist()
        self.federation.note(
            Selected(
                round=server_round,
                phase=phase,
                available=available,
                chosen=chosen,
                seconds=seconds,
                ages=ages,
                scores=scores,
                others=others,
                other_ages=None if others is None else self.memory.ages(others),
                other_scores=None
                if others is None
                else np.round(self.memory.values(others, SIMILARITY), 6).tolist(),
            )
        )

    def own_state(self) -> dict[str, Any]:
        """Return the state of the generators, of the selector, and what is known of the clients."""
        pools = self.pools
        return super().own_state() | {"update": pools.update, "usual": pools.claims.state_dict()}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`own_state` returned."""
        super().load_own_state(state)
        self.pools.update = state["update"]
        self.pools.claims.load_state_dict(state["usual"])
