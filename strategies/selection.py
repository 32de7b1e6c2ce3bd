"""Who trains: a selector picks clients, the strategy inside sees only those."""

import logging
import math
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from client_selectors.base import Candidates, ClientSelector
from strategies.grids import GridView
from strategies.layer import Layer
from strategies.roster import Roster

_log = logging.getLogger("forager")


class Selection(Layer):
    """Narrow the grid to the clients that a selector chooses.

    Parameters
    ----------
    inner : Strategy
        Samples everyone it can see (``fraction_train=1.0``, ``min_*_nodes=1``).
    selector : ClientSelector
        The rule.
    roster : Roster
        Stable names of the clients.
    count : int (default: 0)
        Clients a round; 0 takes ``fraction`` instead.
    fraction : float (default: 1.0)
        Share of the connected clients that train in a round, at least one.
    fraction_evaluate : float (default: 0.0)
        Share that evaluates, drawn uniformly.
    over_commit : float (default: 0.0)
        Ask this share more than needed, so that late ones need not be waited for.
    seed : int (default: 0)
        The choice repeats for the same seed and the same keys, on every runtime.
    identify_timeout : float (default: 60.0)
        Seconds to wait for new nodes to say who they are.
    """

    def __init__(
        self,
        inner: Strategy,
        selector: ClientSelector,
        roster: Roster,
        *,
        count: int = 0,
        fraction: float = 1.0,
        fraction_evaluate: float = 0.0,
        over_commit: float = 0.0,
        seed: int = 0,
        identify_timeout: float = 60.0,
    ) -> None:
        super().__init__(inner)
        self.selector = selector
        self.roster = roster
        self.count = count
        self.fraction = fraction
        self.fraction_evaluate = fraction_evaluate
        self.over_commit = over_commit
        self.identify_timeout = identify_timeout
        self._rng = np.random.default_rng([seed, 1])
        self._evaluate_rng = np.random.default_rng([seed, 2])
        self._short_of = 0
        self.wanted: int | None = None  # replies that are enough for the round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients and let the strategy inside configure them."""
        started = perf_counter()
        available = list(grid.get_node_ids())
        wanted = self.count or max(1, round(self.fraction * len(available)))
        self._say_if_short(wanted, len(available))
        # Not one more because 50 * 1.1 is a hair above 55
        asked = min(len(available), math.ceil(wanted * (1 + self.over_commit) - 1e-9))
        self.wanted = min(wanted, asked)
        if not asked:
            return []
        self.roster.identify(grid, self.identify_timeout)
        nodes = self.roster.in_order(available)
        keys = [self.roster.key(node) for node in nodes]
        positions = self.selector.select(Candidates(keys), asked, self._rng)
        self._note("train", server_round, keys, positions, perf_counter() - started)
        view = GridView(grid, [nodes[i] for i in positions])
        return self._in_order(self.inner.configure_train(server_round, arrays, config, view))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the clients that evaluate."""
        if not self.fraction_evaluate:
            return []
        started = perf_counter()
        nodes = self.roster.in_order(grid.get_node_ids())
        if not nodes:
            return []
        count = max(1, round(self.fraction_evaluate * len(nodes)))
        positions = np.sort(self._evaluate_rng.choice(len(nodes), count, replace=False))
        keys = [self.roster.key(node) for node in nodes]
        self._note("evaluate", server_round, keys, positions, perf_counter() - started)
        view = GridView(grid, [nodes[i] for i in positions])
        return self._in_order(self.inner.configure_evaluate(server_round, arrays, config, view))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Learn who answered, then aggregate."""
        return super().aggregate_train(server_round, self._learning(replies))

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Learn who answered, then aggregate."""
        return super().aggregate_evaluate(server_round, self._learning(replies))

    def _learning(self, replies: Iterable[Message]) -> Iterable[Message]:
        for reply in replies:
            self.roster.learn([reply])
            yield reply

    def _in_order(self, messages: Iterable[Message]) -> list[Message]:
        """Undo the shuffling of Flower's sampling: sums are taken in the same order every time."""
        by_node = {message.metadata.dst_node_id: message for message in messages}
        return [by_node[node] for node in self.roster.in_order(by_node)]

    def _say_if_short(self, wanted: int, available: int) -> None:
        if available < wanted != self._short_of:
            self._short_of = wanted
            _log.info(
                "%d clients a round were asked for, %d are there: training those",
                wanted,
                available,
            )

    def _note(
        self, phase: str, server_round: int, keys: list[str], positions: Any, seconds: float
    ) -> None:
        self.journal(
            "selected",
            round=server_round,
            phase=phase,
            available=len(keys),
            chosen=[keys[i] for i in positions],
            seconds=seconds,
        )

    def own_state(self) -> dict[str, Any]:
        """Return the state of the generators and of the selector."""
        return {
            "rng": self._rng.bit_generator.state,
            "evaluate-rng": self._evaluate_rng.bit_generator.state,
            "selector": self.selector.state_dict(),
        }

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`own_state` returned."""
        self._rng.bit_generator.state = state["rng"]
        self._evaluate_rng.bit_generator.state = state["evaluate-rng"]
        self.selector.load_state_dict(state["selector"])
