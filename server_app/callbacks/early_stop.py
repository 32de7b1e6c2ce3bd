"""End a run that has got where it should, or gets nowhere."""

from typing import Any

from ..loop import Loop
from .base import Callback


class EarlyStop(Callback):
    """Stop at a target accuracy, or when accuracy has not risen for some evaluations.

    Parameters
    ----------
    patience : int
        Evaluations without a rise that end the run; 0 for never.
    min_delta : float
        How much counts as a rise.
    target : float
        Accuracy that is enough; 0 for none.
    """

    def __init__(self, patience: int, min_delta: float, target: float) -> None:
        self.patience = patience
        self.min_delta = min_delta
        self.target = target
        self._best = float("-inf")
        self._without = 0
        self._seen = -1

    def on_round_end(self, loop: Loop) -> str | None:
        """Look at the newest accuracy, once."""
        if loop.evaluated_round == self._seen or loop.accuracy is None:
            return None
        self._seen = loop.evaluated_round
        if self.target and loop.accuracy >= self.target:
            return "early-stop"
        if loop.accuracy > self._best + self.min_delta:
            self._best, self._without = loop.accuracy, 0
        else:
            self._without += 1
        return "early-stop" if self.patience and self._without >= self.patience else None

    def state_dict(self) -> dict[str, Any]:
        """Return the best so far and how long ago it was."""
        best = self._best if self._best > float("-inf") else None
        return {"best": best, "without": self._without, "seen": self._seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self._best = float("-inf") if state["best"] is None else float(state["best"])
        self._without, self._seen = int(state["without"]), int(state["seen"])
