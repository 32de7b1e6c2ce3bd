"""The split test on the server: cohorts found by the updates that clients send anyway."""

import logging
import math
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.methods.split_testing import SplitTestSettings
from ...core.tasks import load_task
from ...core.tasks.models.head import has_output_bias
from ...core.wire.replies import Replies
from ...selectors.cohorts.split import SplitRule
from ...selectors.cohorts.split_testing import SplitTest
from ..federation.update_observations import BIAS_UPDATE, UpdateObservations
from .base import CohortSignals, CoreRule, Regrouping, Scene, asked_losses, split_into

_log = logging.getLogger("forager")
_IN_A_ROW = 2  # rounds in which groups must be seen
_UNASKED = 1  # rounds after a split in which nobody is asked


class SplitTestRule(CoreRule[SplitTest]):
    """Cohorts that are split where there are groups, and that clients are asked about."""

    remembers = ("last_split",)
    name = "split-test"
    _divisor = 10  # of the participants: what each part must keep

    def __init__(self, config: RunConfig) -> None:
        count, share = config.participation()
        self.set_up(
            config[SplitTestSettings],
            config.seed,
            participants=count or max(1, round(share * config.num_clients)),
            rounds=config.num_server_rounds,
            private=config.privacy == "local-dp",
        )
        self._population = config.num_clients

    def set_up(
        self,
        settings: SplitTestSettings,
        seed: int,
        *,
        participants: int = 10,  # per round
        rounds: int = sys.maxsize,  # of the run
        private: bool = False,  # whether clients may not be asked for losses
    ) -> None:
        """Begin with one cohort."""
        self.participants = participants
        self.asks = not private
        self.core = SplitTest(
            parts=settings.parts,
            rule=SplitRule(
                first_round=settings.first_split,
                rounds=_IN_A_ROW,
                participants=settings.least_part(participants, self._divisor),
            ),
            asks=self.asks,
            seed=seed,
        )
        self.rounds = rounds
        self.last_split = 0  # round of the server
        self._population = participants
        self._report: dict[str, Any] = {}

    def place(self, scene: Scene) -> list[str]:
        """Return each client's cohort, the mean of all or none for one that is not known."""
        return self.core.place(scene.keys, scene.training, scene.round)

    def regroup(self, scene: Scene) -> Regrouping | None:
        """Ask clients that no cohort knows, or that do not fit, which model suits them."""
        self._population = len(scene.keys)
        if self.asks and self.last_split and scene.round - self.last_split > _UNASKED:
            most = max(20, 2 * self.participants)
            asked = self.core.to_ask(scene.keys, scene.round, most)
            answers = asked_losses(scene, asked)
            leaves = self.core.leaves()
            losses = {
                key: [told.get(leaf, math.nan) for leaf in leaves] for key, told in answers.items()
            }
            self.core.told(asked, losses, scene.round)
        return None

    def settled(self, placed: Mapping[str, str]) -> dict[str, str]:
        """Return the cohorts of the clients that are known."""
        homes = {key: self.core.home(key) for key in placed}
        return {key: leaf for key, leaf in homes.items() if leaf is not None}

    def learn(
        self, server_round: int, rounds: Mapping[str, int], seen: Mapping[str, CohortSignals]
    ) -> Regrouping | None:
        """Look for groups in every leaf, and split those that have some."""
        parts: dict[str, list[str]] = {}
        self._report = {"heterogeneity": {}, "reasons": {}}
        for leaf, observed in seen.items():
            found = self.core.observe(
                leaf, observed.keys, observed.signals, self._population, server_round
            )
            if found.groups is not None and found.groups.parts > 1:
                self._report["heterogeneity"][leaf] = found.groups.within
            if found.children:
                parts[leaf] = found.children
            else:
                self._report["reasons"][leaf] = found.reason
        if parts:
            self.last_split = server_round
        elif server_round >= self.rounds and not self.last_split:
            reasons = self._report["reasons"].values()
            _log.info("%s did not split: %s", self.name, "; ".join(reasons) or "nobody took part")
        return split_into(rounds, parts)

    def hear_late(
        self, key: str, cohort: str, server_round: int, signal: NDArray[np.float64]
    ) -> None:
        """Learn how well a client fits, and what it does differently, as if it had been in time."""
        self.core.observe_late(cohort, key, signal, server_round)

    def report(self) -> dict[str, Any]:
        """Return how much of the variance is within the groups found, and why there is no split."""
        return self._report


class ConflictTestRule(SplitTestRule):
    """Cohorts that are split where one model cannot serve all: not for labels alone."""

    name = "conflict-test"
    _divisor = 5

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        task = load_task(config.task_spec())
        shown = task.problem.has_classes and has_output_bias(task.build_model())
        self._shifts = UpdateObservations(frozenset([BIAS_UPDATE])) if shown else None

    def hear(
        self,
        keys: Sequence[str],
        replies: Replies,
        sent: Sequence[ArrayRecord | None],
        skip: Container[int],
    ) -> dict[int, str]:
        """Look at what the labels of clients did to the output layer's bias."""
        if self._shifts is not None:
            shifts = self._shifts.read(BIAS_UPDATE, sent, replies)
            self.core.hear_labels(keys, [None if r in skip else s for r, s in enumerate(shifts)])
        return {}
