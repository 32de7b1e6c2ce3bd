"""Local steps that the server gives each client, by its speed."""

from ...core.wire.keys import STEPS, WORK
from ..batch import ClientBatch
from .base import ClientHook


class GivenSteps(ClientHook):
    """Train for as many steps as the message says; the usual ones if it says nothing."""

    def before(self, batch: ClientBatch) -> None:
        """Read the steps of each client."""
        given = batch.requests.column(WORK)
        batch.steps = [0 if work is None else max(1, int(work[STEPS])) for work in given]
