"""Auxo on the client: it keeps its own affinity records and sends them as its request."""

from flwr.app import ConfigRecord

from ...core.learning.job import Outcome
from ...core.wire.keys import AFFINITY
from ...core.wire.records import filled
from ...selectors.cohorts.affinity import Affinity, Feedback
from ...selectors.cohorts.tree import CohortTree
from ..batch import ClientRow
from .base import PerClientHook

_SECTION = "affinity"


class AffinityRecords(PerClientHook):
    """Learn from the server's feedback, remember, and say what cohorts suit this client."""

    of_updates = True

    def before_one(self, row: ClientRow) -> None:
        """Take in the feedback that came with the message."""
        told = row.sent(AFFINITY)
        if told is None:
            return
        affinity, feedback = Affinity(), None
        if "serial" in told:
            feedback = Feedback(told["cohort"], told["reward"], told["index"], told["serial"])
        if _SECTION in row.state:
            affinity.load_state_dict(row.state[_SECTION])
        affinity.learn(feedback, CohortTree.of_leaves(told["leaves"]))
        row.state[_SECTION] = affinity.state_dict()

    def after_one(self, row: ClientRow, outcome: Outcome) -> Outcome:
        """Send the records along: the cohort clusters and rewards by them."""
        self.request(row)
        return outcome

    def request(self, row: ClientRow) -> None:
        """Add the records to a reply, if there are any."""
        if _SECTION in row.state:
            row.reply(AFFINITY, filled(ConfigRecord, row.state[_SECTION]))
