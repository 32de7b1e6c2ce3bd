"""Auxo on the client: it keeps its own affinity records and sends them as its request."""

from typing import Any

from flwr.app import ConfigRecord

from ...core.config.run_config import RunConfig
from ...core.learning.job import Job, Outcome
from ...core.wire.keys import AFFINITY
from ...core.wire.records import entries, record_at
from ...selectors.cohorts.affinity import Affinity, Feedback
from ...selectors.cohorts.tree import CohortTree
from ..request import Part, Visit

_SECTION = "affinity"


class AffinityRecords(Part):
    """Learn from the server's feedback, remember, and say what cohorts suit this client."""

    def __init__(self, config: RunConfig) -> None:
        self.rate = config.cohort.reward_rate

    def before(self, visit: Visit) -> None:
        """Take in the feedback that came with the message."""
        record = record_at(visit.message.content, AFFINITY, ConfigRecord)
        if record is None:
            return
        told: dict[str, Any] = dict(entries(record))
        affinity = recorded(visit)
        feedback = None
        if "serial" in told:
            feedback = Feedback(told["cohort"], told["reward"], told["index"], told["serial"])
        affinity.learn(feedback, CohortTree.of_leaves(told["leaves"]), self.rate)
        visit.state[_SECTION] = affinity.state_dict()

    def after(self, visit: Visit, job: Job, outcome: Outcome) -> Outcome:
        """Send the records along."""
        if _SECTION in visit.state:
            visit.reply[AFFINITY] = ConfigRecord(visit.state[_SECTION])
        return outcome


def recorded(visit: Visit) -> Affinity:
    """Return the records that the client kept, empty if it has lost them."""
    affinity = Affinity()
    if _SECTION in visit.state:
        affinity.load_state_dict(visit.state[_SECTION])
    return affinity
