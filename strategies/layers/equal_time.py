"""Clients take local steps in proportion to their speed, and finish together.

With ``work = 'coreset-by-speed'`` the steps determine the size of the coreset (see the client's
hook): no client takes more than its usual steps, which are those on all data.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from ...core.config import ConfigError, RunConfig
from ...core.learning.train_settings import local_steps, train_settings
from ...core.wire.keys import NUM_EXAMPLES, SECONDS, STEPS, WORK
from ...core.wire.records import filled
from ...core.wire.replies import Replies
from ...core.wire.requests import Requests
from ...core.wire.schemas import MOST_SAMPLES
from ...selectors.equal_time import steps_by_speed
from .base import Layer

_MOST = 10_000  # clients that are remembered
_SHORTEST, _LONGEST = 1e-6, 1e9  # seconds that a client may claim


class EqualTime(Layer):
    """Set each client's steps by the time that its last steps took; stands outside quarantine."""

    remembers = ("_known", "_given")

    def __init__(
        self, inner: Strategy, steps_of: Callable[[float], int], *, coresets: bool = False
    ) -> None:
        super().__init__(inner)
        self._coresets = coresets
        self._steps_of = steps_of  # the usual steps of a client with so many samples
        self._known: dict[str, tuple[int, float]] = {}  # usual steps, and seconds of one
        self._given: dict[str, int] = {}  # of the last message

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "EqualTime":
        """Return the layer that a config describes."""
        coresets = config.work == "coreset-by-speed"
        if coresets and config.local_steps:
            raise ConfigError(
                f"local-steps = {config.local_steps}: with work = 'coreset-by-speed' it must be 0: "
                "only epochs are shorter on less data"
            )
        return cls(inner, partial(local_steps, train_settings(config, 1)), coresets=coresets)

    def guide(self, server_round: int, requests: Requests) -> None:
        """Say how many steps each client takes; those not known yet take the usual ones."""
        keys = self.federation.keys(requests.nodes)
        told = [self._known.get(key, (0, math.nan)) for key in keys]
        steps = steps_by_speed([usual for usual, _ in told], [pace for _, pace in told]).tolist()
        work = [
            (min(own, usual) if self._coresets else own) if usual else 0
            for own, (usual, _) in zip(steps, told, strict=True)
        ]
        self._given |= dict(zip(keys, work, strict=True))
        column = [filled(ConfigRecord, {STEPS: own}) if own else None for own in work]
        requests.put_column(WORK, column)

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Learn how fast clients are."""
        self._learn(replies)
        return replies

    def hear(self, server_round: int, replies: Replies) -> None:
        """Learn it from late replies too."""
        self._learn(replies)
        super().hear(server_round, replies)

    def _learn(self, replies: Replies) -> None:
        columns = replies.metrics
        if SECONDS not in columns or NUM_EXAMPLES not in columns:
            return
        rows = zip(columns[SECONDS], columns[NUM_EXAMPLES], strict=True)
        for key, (seconds, samples) in zip(self.federation.keys(replies.nodes), rows, strict=True):
            if not (_within(seconds, _SHORTEST, _LONGEST) and _within(samples, 0, MOST_SAMPLES)):
                continue
            usual = max(1, self._steps_of(math.ceil(samples)))
            pace = seconds / (self._given.get(key) or usual)
            before = self._known.pop(key, (usual, pace))[1]
            self._known[key] = usual, float(np.sqrt(before * pace))
        for old in list(self._known)[: max(0, len(self._known) - _MOST)]:
            del self._known[old]
            self._given.pop(old, None)


def _within(value: Any, least: float, most: float) -> bool:
    return isinstance(value, int | float) and least < value <= most
