"""Clients take more local steps the further they are behind the best of a round (after FLAD)."""

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.wire.keys import LOSS, SHARE, WORK
from ...core.wire.records import filled
from ...core.wire.requests import Requests
from ...selectors.work_by_loss import work_by_loss
from .base import Layer


class WorkByLoss(Layer):
    """Give each client a share of its usual steps, by the loss that it reported to the selector."""

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "WorkByLoss":
        """Return the layer around the rest of a stack."""
        return cls(inner)

    def guide(self, server_round: int, requests: Requests) -> None:
        """Say what share of its usual steps each client takes, once the selector has asked."""
        losses = self.federation.memory.values(self.federation.keys(requests.nodes), LOSS)
        shares = work_by_loss(losses).tolist()
        requests.put_column(WORK, [filled(ConfigRecord, {SHARE: share}) for share in shares])
