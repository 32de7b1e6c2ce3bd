"""Callbacks of every run: the line of each round, the early end, how classes are spread."""

import logging
import math

import numpy as np
from flwr.serverapp import Grid

from ...core.log.events import ClassesSpread
from ...core.tasks import Task
from ...core.tasks.metrics import ACCURACY, Metric, label, written
from ...core.wire.flower_private import is_simulation
from ...selectors.diagnosis.skew import label_skew, quantity_skew
from ..loop import Loop
from .base import Callback

_log = logging.getLogger("forager")
_MOST_CLIENTS = 200  # rows of a picture that can still be told apart
_MOST_CLASSES = 100


class Progress(Callback):
    """Log one line per round."""

    def on_run_start(self, loop: Loop) -> None:
        """Say what is about to happen."""
        first, last = loop.round + 1, loop.num_rounds
        rounds = f"rounds {first} to {last}" if first <= last else f"all {last} rounds are done"
        _log.info("%s: %s", loop.title, rounds)

    def on_round_end(self, loop: Loop) -> None:
        """Say what the round gave."""
        exchange = loop.train_exchange
        parts = [f"round {loop.round}/{loop.num_rounds}"]
        if loop.evaluated_round == loop.round and loop.scores:
            parts += [f"{label(m)} {written(m, loop.scores[m.name])}" for m in loop.metrics]
            if "loss" not in (metric.name for metric in loop.metrics):
                parts.append(f"loss {loop.scores['loss']:.3f}")
            if loop.own_score is not None:
                first = loop.metrics[0]
                parts.append(f"clients' own {label(first)} {written(first, loop.own_score)}")
        if exchange is not None:
            parts.append(f"{exchange.received}/{exchange.sent} clients")
            if exchange.failed or exchange.late:
                parts.append(f"{len(exchange.failed)} failed, {len(exchange.late)} late")
        parts.append(f"{loop.round_seconds:.2f} s")
        _log.info("  ".join(parts))


class EarlyStopCallback(Callback):
    """Stop at a target, or after evaluations without improvement; 0 switches either off."""

    remembers = ("_best", "_without", "_seen")

    def __init__(self, patience: int, target: float, metric: Metric = ACCURACY) -> None:
        self.patience = patience
        self.target = target
        self.metric = metric
        self._best: float | None = None
        self._without = 0
        self._seen = -1

    def on_round_end(self, loop: Loop) -> str | None:
        """Look at the newest value, once."""
        score = loop.score
        if loop.evaluated_round == self._seen or score is None:
            return None
        self._seen = loop.evaluated_round
        if self.target and self.metric.gain(score, over=self.target) >= 0:
            return "early-stop"
        if self._best is None or self.metric.gain(score, over=self._best) > 0:
            self._best, self._without = score, 0
        else:
            self._without += 1
        return "early-stop" if self.patience and self._without >= self.patience else None


class SpendingLimit(Callback):
    """End the run before a round that would spend more than it may; 0 means no limit."""

    def __init__(self, most_bytes: int, most_seconds: float) -> None:
        self.most_bytes, self.most_seconds = most_bytes or math.inf, most_seconds or math.inf
        self._bytes, self._began = 0, math.nan

    def on_run_start(self, loop: Loop) -> None:
        """Look at the clock of the runtime."""
        self._began = loop.grid.clock.now()

    def on_round_end(self, loop: Loop) -> str | None:
        """Expect of the next round as many bytes as the last one took."""
        exchange, spent = loop.train_exchange, loop.grid.clock.now() - self._began
        last = exchange.bytes_down + exchange.bytes_up if exchange is not None else 0
        self._bytes += last
        over = self._bytes + last > self.most_bytes or spent > self.most_seconds
        return "early-stop" if over else None


class ClassesOfClients(Callback):
    """After the first round: Flower's simulation starts the ServerApp before its clients."""

    def __init__(self, grid: Grid, task: Task) -> None:
        self.grid, self.task = grid, task

    def on_round_end(self, loop: Loop) -> None:
        """Write it down once."""
        event = classes_spread(self.grid, self.task) if loop.round == 1 else None
        if event is not None:
            loop.federation.note(event)
            samples = list(map(sum, event.counts))
            skews = label_skew(event.counts), quantity_skew(samples)
            _log.info("skew of the clients' data, 0 to 1: labels %.2f, quantity %.2f", *skews)


def classes_spread(grid: Grid, task: Task) -> ClassesSpread | None:
    """Return how many samples of each class simulated clients hold; None on devices."""
    clients = int(getattr(grid, "num_partitions", 0))
    if is_simulation(grid):
        clients = len(list(grid.get_node_ids()))
    if not clients or not task.problem.has_classes or task.num_classes > _MOST_CLASSES:
        return None
    counts = task.class_counts(clients, at_most=_MOST_CLIENTS)
    if counts is None:
        return None
    return ClassesSpread(clients=clients, counts=np.asarray(counts).tolist())
