"""Clients take more local steps the further they are behind the best of a round (after FLAD)."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
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

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Say what share of its usual steps each client takes, once the selector has asked."""
        requests = Requests.of(super().configure_train(server_round, arrays, config, grid))
        if requests is None:
            return []
        losses = self.federation.memory.values(self.federation.keys(requests.nodes), LOSS)
        shares = work_by_loss(losses).tolist()
        requests.put_column(WORK, [filled(ConfigRecord, {SHARE: share}) for share in shares])
        return requests
