"""Auxo on the client: affinity records, which it keeps and sends as its request."""

import numpy as np
from flwr.app import ConfigRecord

from ...core.config import RunConfig
from ...core.learning.job import Outcome, batch_seed
from ...core.methods.auxo import AuxoSettings
from ...core.wire.keys import AFFINITY
from ...core.wire.records import filled
from ...selectors.cohorts.affinity import Affinity, Feedback
from ...selectors.cohorts.tree import CohortTree
from ..batch import ClientRow
from .base import PerClientHook

_SECTION = "affinity"


class AffinityRecords(PerClientHook):
    """Update the records from the server's feedback, and request a cohort by them."""

    of_updates = True

    def __init__(self, config: RunConfig) -> None:
        settings = config[AuxoSettings]
        self.lost = settings.records_lost
        self.every_round = settings.explore_reward == "every-round"

    def before_one(self, row: ClientRow) -> None:
        """Take in the feedback that came with the message."""
        told = row.sent(AFFINITY)
        if told is None:
            return
        affinity, feedback = Affinity(), None
        if "serial" in told:
            feedback = Feedback(told["cohort"], told["reward"], told["index"], told["serial"])
        if self._loses(row, told["leaves"]):  # also what it was told since the last round
            affinity.serial, feedback = told.get("serial", 0), None
        elif _SECTION in row.state:
            affinity.load_state_dict(row.state[_SECTION])
        tree = CohortTree.of_leaves(told["leaves"])
        affinity.learn(feedback, tree, every_round=self.every_round)
        row.state[_SECTION] = affinity.state_dict()

    def after_one(self, row: ClientRow, outcome: Outcome) -> Outcome:
        """Send the records along: the cohort clusters and rewards by them."""
        self.request(row)
        return outcome

    def request(self, row: ClientRow) -> None:
        """Add the records to a reply, if there are any."""
        if _SECTION in row.state:
            row.reply(AFFINITY, filled(ConfigRecord, row.state[_SECTION]))

    def _loses(self, row: ClientRow, leaves: list[str]) -> bool:
        """Return whether a simulated client has lost its records since the round before."""
        asked_before = row.batch.trains and len(leaves) > 1
        if not self.lost or asked_before or not row.simulated:
            return False
        rng = np.random.default_rng(batch_seed(row.config.seed, f"{row.key} loses", row.round))
        return bool(rng.random() < self.lost)
