"""End a run that has reached its target, or no longer improves."""

import math
from typing import Any

from ...core.tasks.metrics import ACCURACY, Metric
from ..loop import Loop
from .base import Callback


class EarlyStopCallback(Callback):
    """Stop at a target, or when the main metric has not improved for some evaluations.

    With a patience or a target of 0 it never does.
    """

    def __init__(self, patience: int, target: float, metric: Metric = ACCURACY) -> None:
        self.patience = patience
        self.target = target
        self.metric = metric
        self._best = math.nan
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
        if math.isnan(self._best) or self.metric.gain(score, over=self._best) > 0:
            self._best, self._without = score, 0
        else:
            self._without += 1
        return "early-stop" if self.patience and self._without >= self.patience else None

    def state_dict(self) -> dict[str, Any]:
        """Return the best so far and how long ago it was."""
        best = None if math.isnan(self._best) else self._best
        return {"best": best, "without": self._without, "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._best = math.nan if state["best"] is None else float(state["best"])
        self._without, self._seen = int(state["without"]), int(state["seen"])
