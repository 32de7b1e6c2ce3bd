"""Auxo on the client: it keeps its own affinity records and sends them as its request."""

from typing import Any

from flwr.app import ConfigRecord

from client_app.job import Job, Outcome
from client_app.visit import Part, Visit
from cohorts.affinity import Affinity, Feedback
from cohorts.tree import CohortTree
from server_app.config import RunConfig
from wire.keys import AFFINITY
from wire.records import entries, record_at

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
