"""The one place that loops over rounds.

It drives any Flower strategy and owns what ``Strategy.start`` lacks: deadlines, minimum replies,
repeated rounds, callbacks (checkpoints, early stop, ...), a clean end on SIGTERM, and resuming.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from ..core.log.events import Aggregated, Evaluated, RolledBack, RoundFinished, RunFinished
from ..core.wire.arrays import from_record, to_record
from ..core.wire.keys import FROZEN, RUN, SCALE, SETTINGS, TRAIN_LOSS
from ..core.wire.replies import Replies, ReplyStream
from ..core.wire.requests import Requests
from ..strategies.aggregation.metric_spread import metric_spread
from ..strategies.layers.base import RunOver, as_layer, unchanged_on_failure
from .callbacks.base import Callback
from .exchange import Exchange
from .post import Post
from .retries import (
    ROLL_BACK_AFTER,
    AllRefused,
    Interrupted,
    LoopPlan,
    NobodyThere,
    Patience,
    RoundFailed,
    RunFailed,
    stop_on_signals,
)

_log = logging.getLogger("forager")

Evaluate = Callable[[ArrayRecord], dict[str, float]]


class Loop:
    """Rounds of federated learning.

    ``evaluate`` returns a model's metrics, and its "loss", by name. Callbacks that remember come
    before the one that saves. ``earlier`` returns a saved state from before a round, or None.
    ``prepare`` is called before anything else in a run that is not resumed; it may ask clients.
    """

    def __init__(
        self,
        strategy: Strategy,
        grid: Post,
        arrays: ArrayRecord,
        plan: LoopPlan,
        *,
        evaluate: Evaluate,
        callbacks: Sequence[Callback] = (),
        earlier: Callable[[int], dict[str, Any] | None] = lambda server_round: None,
        prepare: Callable[["Loop"], None] | None = None,
    ) -> None:
        self.strategy = as_layer(strategy)
        self.federation = grid.federation
        self.grid = grid
        self.arrays = arrays
        self.plan = plan
        self.evaluate = evaluate
        self.callbacks = callbacks
        self.earlier = earlier
        self.prepare = prepare
        self._rolled_back_in = 0  # the round that failed when the run last went back

        self.title = plan.title or self.strategy.describe()
        self.round = 0
        self.reason = ""
        self.unwritten: list[str] = []  # what a user would miss
        self.metrics = self.federation.metrics
        self.scores: dict[str, float] = {}  # of the last evaluation, by metric, and the loss
        self.own_score: float | None = None  # the clients' mean on their own data, if asked
        self.evaluated_round = -1
        self.round_seconds = 0.0
        self.train_exchange: Exchange | None = None
        # The state after the last complete round, also while another is played
        self.snapshot: dict[str, Any] = {}
        self._patience = Patience(plan)

    @property
    def num_rounds(self) -> int:
        """The last round."""
        return self.plan.num_rounds

    def run(self) -> str:
        """Run the rounds that are left; return how the run ended."""
        started = time.monotonic()
        message = ""
        for callback in self.callbacks:
            callback.on_run_start(self)
        self.take_snapshot(anew=True)
        try:
            with stop_on_signals():
                self.reason = self._rounds()
        except RunOver as why:
            self.reason, message = "completed", str(why)
            _log.info("the run ends after round %d: %s", self.round, message)
            if self.evaluated_round < self.round:
                self._evaluate_on_server(self.round, self.arrays)
        except Interrupted as signal:
            self.reason, message = "interrupted", str(signal)
        except RunFailed as error:
            self.reason, message = "failed", str(error)
            raise
        finally:
            self.federation.note(
                RunFinished(
                    reason=self.reason or "failed",
                    rounds=self.round,
                    seconds=time.monotonic() - started,
                    message=message,
                )
            )
            for callback in self.callbacks:
                callback.on_run_end(self)
        if self.unwritten:
            self.reason = "failed"
            raise RunFailed(f"the run is over, but could not write {', '.join(self.unwritten)}")
        return self.reason

    def _rounds(self) -> str:
        if self.round == 0:
            if self.prepare is not None:
                self.prepare(self)
                self.take_snapshot(anew=True)
            self._evaluate_on_server(0, self.arrays)
        while self.round < self.num_rounds:
            reason = self.play_round()
            if reason:
                return reason
        return "completed"

    def play_round(self) -> str | None:
        """Play the next round; a text is the reason to end the run with it."""
        started = time.monotonic()
        self._train_until_success()
        if self._is_evaluated(self.round):
            self._evaluate_on_clients()
        self.round_seconds = time.monotonic() - started
        away = self.federation.roster.away()
        self.federation.note(
            RoundFinished(round=self.round, seconds=self.round_seconds, away=away or None)
        )
        reasons = [callback.on_round_end(self) for callback in self.callbacks]
        self.take_snapshot()
        return next(filter(None, reasons), None)

    def _is_evaluated(self, server_round: int) -> bool:
        return server_round % self.plan.evaluate_every == 0 or server_round == self.num_rounds

    def _train_until_success(self) -> None:
        """Train and evaluate the next round; after a roll-back that is an earlier one."""
        self._patience.begin()
        again = False
        while True:
            server_round = self.grid.round = self.round + 1
            self.federation.begin_round(again=again)
            try:
                self._train(server_round)
                return
            except RoundFailed as failure:
                self._patience.count(failure, self.train_exchange)
                early = self._patience.asks_for_earlier_state
                again = not (early and self._roll_back(str(failure)))
                if again:
                    self._patience.wait(server_round, failure)
                else:
                    self._patience.begin()

    def _roll_back(self, reason: str) -> bool:
        """Go back to the state before the one that fails; False if there is none.

        If the same round fails again after that, the fault is elsewhere.
        """
        failed = self.round + 1
        if failed <= self._rolled_back_in:
            return False
        state = self.earlier(self.round)
        if state is None:
            return False
        self.load_state(state)
        self._rolled_back_in = failed
        self.take_snapshot(anew=True)
        _log.warning(
            "round %d failed %d times with every reply set aside: the run goes back to round %d",
            *(failed, ROLL_BACK_AFTER, self.round),
        )
        self.federation.note(RolledBack(round=failed, to=self.round, reason=reason))
        for callback in self.callbacks:
            callback.on_roll_back(self)
        return True

    def _train(self, server_round: int) -> None:
        self.train_exchange = None
        late = self._hear_late(server_round)
        config = self._message_config()
        try:
            requests = Requests.of(
                self.strategy.configure_train(server_round, self.arrays, config, self.grid)
            )
        except RunOver:
            raise
        except Exception as error:  # whatever a client did or did not send, the run continues
            _log.exception("round %d could not be prepared", server_round)
            raise RoundFailed(f"preparing failed: {type(error).__name__}: {error}") from error
        if requests is None and not self.federation.busy:
            if next(iter(self.grid.get_node_ids()), None) is None:
                raise NobodyThere("no client is connected")
            admission = self.federation.admission
            hint = "" if admission.is_open() else f"; the run is only for {admission}"
            raise RoundFailed(f"none of the connected clients could be chosen{hint}")
        tables = iter(self.grid.exchange(requests, enough=self.strategy.replies_wanted()))
        # These are kept before the first is given away; the rest may be summed up one by one.
        kept: list[Replies] = []
        while (
            sum(map(len, kept)) < self.plan.min_replies
            and (table := next(tables, None)) is not None
        ):
            kept.append(table)
        self.train_exchange = self.grid.last
        received = sum(map(len, kept))
        if received < self.plan.min_replies:
            assert self.train_exchange is not None
            least, called = self.plan.min_replies, self.federation.roster.called
            raise RoundFailed(self.train_exchange.shortfall(received, least, called))
        with unchanged_on_failure(self.strategy):
            arrays, metrics = self._aggregate(server_round, ReplyStream(chain(late, kept, tables)))
            self.federation.note(Aggregated(round=server_round, metrics=_train_metrics(metrics)))
            if self._is_evaluated(server_round):
                self._try_out(server_round, arrays)
        self.arrays, self.round = arrays, server_round

    def _try_out(self, server_round: int, arrays: ArrayRecord) -> None:
        """Evaluate a new model; one that cannot be is refused: what clients sent is part of it."""
        try:
            self._evaluate_on_server(server_round, arrays)
        except Exception as error:
            _log.exception("the model of round %d could not be evaluated", server_round)
            reason = f"{type(error).__name__}: {error}"
            raise AllRefused(f"the new model cannot be evaluated: {reason}") from error

    def _hear_late(self, server_round: int) -> list[Replies]:
        """Return late replies if they are to be aggregated; otherwise layers learn from them."""
        came = self.grid.late()
        if self.plan.late_counts:
            return came
        for replies in came:
            try:
                self.strategy.hear(server_round, replies)
            except Exception as error:  # whatever a client sent, the run continues
                reason = str(error) if isinstance(error, ValueError) else repr(error)
                for node in replies.nodes:
                    self.federation.set_aside(server_round, node, f"late: {reason}")
        return []

    def _aggregate(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        try:
            arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        except Exception as error:  # Flower's strategies raise many kinds for what they cannot use
            raise AllRefused(f"aggregation failed: {type(error).__name__}: {error}") from error
        if arrays is None:
            raise AllRefused(
                f"no reply could be used, all were set aside; {self.federation.last_refusal}"
            )
        if not all(np.isfinite(array).all() for array in from_record(arrays).values()):
            raise AllRefused("the aggregated model is not finite")
        return arrays, metrics

    def _evaluate_on_server(self, server_round: int, arrays: ArrayRecord) -> None:
        """Evaluate the model, or the models of all cohorts: what a client can expect of its own."""
        models = self.strategy.models(arrays)
        results = {name: self.evaluate(model) for name, (model, _) in models.items()}
        names = [*(metric.name for metric in self.metrics), "loss"]
        self.scores = {
            name: sum(share * results[model][name] for model, (_, share) in models.items())
            for name in names
        }
        self.evaluated_round = server_round
        by_cohort = {model: result[names[0]] for model, result in results.items()}
        self.federation.note(
            Evaluated(
                round=server_round,
                metrics={name: score for name, score in self.scores.items() if name != "loss"},
                loss=self.scores["loss"],
                cohorts=by_cohort if len(models) > 1 else None,
            )
        )

    def _message_config(self) -> ConfigRecord:
        """Return what every message says: which run it is of, and what the model builds on."""
        clients = self.federation
        said = {RUN: clients.run, FROZEN: self.plan.frozen, SCALE: clients.scale}
        said[SETTINGS] = clients.settings
        return ConfigRecord({key: value for key, value in said.items() if value})

    def _evaluate_on_clients(self) -> None:
        self.own_score = None
        config = self._message_config()
        try:
            requests = Requests.of(
                self.strategy.configure_evaluate(self.round, self.arrays, config, self.grid)
            )
        except Exception:  # nothing depends on it
            _log.exception("the evaluation of round %d could not be prepared", self.round)
            return
        if requests is None:
            return
        tables = list(self.grid.exchange(requests))
        metrics = [MetricRecord(row.metrics) for table in tables for row in table.rows()]
        try:
            self.strategy.aggregate_evaluate(self.round, ReplyStream(tables))
        except Exception as error:  # as in training, but nothing depends on it
            _log.warning("evaluation metrics could not be aggregated: %s", error)
        told = metric_spread(metrics, self.metrics, self.round)
        if told is not None:
            self.federation.note(told)
            own = (told.spread or {}).get(self.metrics[0].name)
            self.own_score = own.mean if own else None

    @property
    def score(self) -> float | None:
        """The metric that matters, as last evaluated; None before, or if it is not a number."""
        score = self.scores.get(self.metrics[0].name, math.nan)
        return None if math.isnan(score) else score

    def take_snapshot(self, *, anew: bool = False) -> dict[str, Any]:
        """Return the state after the last complete round, made once a round."""
        if anew or self.snapshot.get("round") != self.round:
            self.snapshot = self.state()
        return self.snapshot

    def state(self) -> dict[str, Any]:
        """Return all that a resumed run needs; arrays are shared, as none is changed in place."""
        return {
            "round": self.round,
            "run": self.federation.run,
            "config": self.plan.config,
            "arrays": from_record(self.arrays),
            "strategy": self.strategy.state_dict(),
            "clients": self.grid.clients_state(),
            "callbacks": {_name(c): c.state_dict() for c in self.callbacks},
            "scores": self.scores,
            "evaluated-round": self.evaluated_round,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue after the round at which the state was taken."""
        self.round = int(state["round"])
        self.arrays = to_record(state["arrays"])
        self.strategy.load_state_dict(state["strategy"])
        self.grid.load_clients_state(state["clients"])
        for callback in self.callbacks:
            callback.load_state_dict(state["callbacks"].get(_name(callback), {}))
        self.scores = dict(state["scores"] if "scores" in state else _old_scores(state))
        self.evaluated_round = int(state["evaluated-round"])


def _name(callback: Callback) -> str:
    return type(callback).__name__.removesuffix("Callback")


def _old_scores(state: dict[str, Any]) -> dict[str, float]:
    """Return the scores of an old checkpoint, which has the accuracy only."""
    known = state["accuracy"] is not None
    return {"accuracy": state["accuracy"], "loss": state["loss"]} if known else {}


def _train_metrics(metrics: MetricRecord | None) -> dict[str, Any]:
    """Return the metrics under the names of the event log, which has no underscores.

    >>> _train_metrics(MetricRecord({"train_loss": 0.5, "train-loss": 9.0}))
    {'train-loss': 0.5}
    """
    if metrics is None:
        return {}
    told = {name.replace("_", "-"): value for name, value in metrics.items()}
    return {**told, "train-loss": metrics.get(TRAIN_LOSS)}
