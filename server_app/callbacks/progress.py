"""Log how the run is going, one line per round."""

import logging

from ...core.tasks.metric_text import label, written
from ..loop import Loop
from .base import Callback

_log = logging.getLogger("forager")


class Progress(Callback):
    """Log one line per round."""

    def on_run_start(self, loop: Loop) -> None:
        """Say what is about to happen."""
        _log.info("%s: rounds %d to %d", loop.title, loop.round + 1, loop.num_rounds)

    def on_round_end(self, loop: Loop) -> str | None:
        """Say what the round gave."""
        exchange = loop.train_exchange
        parts = [f"round {loop.round}/{loop.num_rounds}"]
        if loop.evaluated_round == loop.round and loop.scores:
            parts += [f"{label(m)} {written(m, loop.scores[m.name])}" for m in loop.metrics]
            if "loss" not in (metric.name for metric in loop.metrics):
                parts.append(f"loss {loop.scores['loss']:.3f}")
            if loop.own_score is not None:
                parts.append(f"on own data {written(loop.metrics[0], loop.own_score)}")
        if exchange is not None:
            parts.append(f"{exchange.received}/{exchange.sent} clients")
            if exchange.failed or exchange.late:
                parts.append(f"{len(exchange.failed)} failed, {len(exchange.late)} late")
        parts.append(f"{loop.round_seconds:.2f} s")
        _log.info("  ".join(parts))
        return None
