"""Local steps that the server gives each client, by its speed or its loss."""

from ...core.learning.train_settings import given_steps, train_settings
from ...core.wire.keys import WORK
from ..batch import ClientBatch
from .base import ClientHook


class GivenSteps(ClientHook):
    """Train for as many steps as the message requests; by default for the usual ones."""

    def before(self, batch: ClientBatch) -> None:
        """Read the steps of each client."""
        usual, given = train_settings(batch.config, batch.round), batch.requests.column(WORK)
        batch.steps = [
            0 if work is None else given_steps(work, usual, len(data))
            for work, data in zip(given, batch.data, strict=True)
        ]
