"""Auxo on the client: it keeps its own affinity records and sends them as its request."""

from typing import Any

from flwr.app import ConfigRecord

from ...core.learning.job import Job, Outcome
from ...core.wire.keys import AFFINITY
from ...core.wire.records import entries, record_at
from ...selectors.cohorts.affinity import Affinity, Feedback
from ...selectors.cohorts.tree import CohortTree
from ..request import ClientHook, ClientRequest

_SECTION = "affinity"


class AffinityRecords(ClientHook):
    """Learn from the server's feedback, remember, and say what cohorts suit this client."""

    def before(self, request: ClientRequest) -> None:
        """Take in the feedback that came with the message."""
        record = record_at(request.message.content, AFFINITY, ConfigRecord)
        if record is None:
            return
        told: dict[str, Any] = dict(entries(record))
        affinity = recorded(request)
        feedback = None
        if "serial" in told:
            feedback = Feedback(told["cohort"], told["reward"], told["index"], told["serial"])
        affinity.learn(feedback, CohortTree.of_leaves(told["leaves"]))
        request.state[_SECTION] = affinity.state_dict()

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Send the records along."""
        if _SECTION in request.state:
            request.reply[AFFINITY] = ConfigRecord(request.state[_SECTION])
        return outcome


def recorded(request: ClientRequest) -> Affinity:
    """Return the records that the client kept, empty if it has lost them."""
    affinity = Affinity()
    if _SECTION in request.state:
        affinity.load_state_dict(request.state[_SECTION])
    return affinity
