"""Observations of clients from their updates, for rules that choose clients."""

from collections.abc import Callable, Sequence

import numpy as np
from flwr.app import ArrayRecord

from ...core.wire.arrays import from_record
from ...core.wire.keys import NUM_EXAMPLES
from ...core.wire.replies import Replies
from ..cohorts.update_sketches import Signal

UPDATE = "update"
BIAS_UPDATE = "bias-update"
_LENGTH = 128  # of the sketch of an update


class UpdateObservations:
    """A sketch of each client's update, and how it changed the output layer's bias.

    - ``needs``: what the rule looks at.
    - ``seed``: of the sketches.
    - ``steps_of``: how many local steps a number of samples makes. The bias's update is divided by
      them: with few steps it would look like that of a client with all classes.
    """

    def __init__(
        self, needs: frozenset[str], seed: int = 0, steps_of: Callable[[float], int] | None = None
    ) -> None:
        self.names, self.steps_of = sorted(needs & {UPDATE, BIAS_UPDATE}), steps_of
        self._signal = Signal(_LENGTH, seed)

    def read(
        self, name: str, sent: Sequence[ArrayRecord | None], replies: Replies
    ) -> list[list[float] | None]:
        """Return an observation of each row, None where the model that was sent is not known."""
        if name == UPDATE:
            self._signal.begin()
            found, _ = self._signal.of(sent, replies)
        else:
            last = list(replies.arrays)[-1]  # of a linear head, the last layer: its bias
            found = replies.arrays[last].astype(np.float64)
            models = {id(m): m for m in sent if m is not None}  # most were sent the same
            before = {key: from_record(model)[last] for key, model in models.items()}
            for row, model in enumerate(sent):
                if model is not None:
                    found[row] -= before[id(model)]
                if self.steps_of is not None:
                    found[row] /= max(1, self.steps_of(replies.metrics[NUM_EXAMPLES][row]))
        return [None if m is None else r.tolist() for m, r in zip(sent, found, strict=True)]
