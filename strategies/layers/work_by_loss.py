"""Clients train for the more steps, the further they are behind the best that train with them."""

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.wire.keys import LOSS, SHARE, WORK
from ...core.wire.records import filled
from ...core.wire.requests import Requests
from ...selectors.work_by_loss import work_by_loss
from .base import Layer


class WorkByLoss(Layer):
    """Give each client a share of its usual steps by the loss that its selector learned of it."""

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "WorkByLoss":
        """Return the layer around the rest of a stack."""
        return cls(inner)

    def guide(self, server_round: int, requests: Requests) -> None:
        """Say what share of its usual steps each client takes, once the selector has asked."""
        losses = self.federation.memory.values(self.federation.keys(requests.nodes), LOSS)
        shares = work_by_loss(losses).tolist()
        requests.put_column(WORK, [filled(ConfigRecord, {SHARE: share}) for share in shares])
