"""The client side of a method: independent hooks before and after training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.learning.job import Outcome, Outcomes

if TYPE_CHECKING:
    from ...core.config import RunConfig
    from ...core.learning.train_settings import TrainSettings
    from ..batch import Arrays, ClientBatch, ClientRow


class ClientHook:
    """The client side of one method, made once per run and process."""

    chooses_data = False  # whether it also acts where a client only gives a sample of its training
    holds_data = False  # whether what it chooses is all that the client holds
    of_updates = False  # whether it looks at nothing but models and what the client keeps

    def __init__(self, config: RunConfig) -> None:
        """Take settings from the run config."""

    def before(self, batch: ClientBatch) -> None:
        """Look at what came; change data, weights or what the objective carries."""

    def training(self, settings: TrainSettings) -> TrainSettings:
        """Return the settings of local training, with what the method wants to know of it."""
        return settings

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Look at what came of it; add records to the replies; return what to send."""
        return outcomes

    def own_models(self, batch: ClientBatch, models: Sequence[Arrays]) -> Sequence[Arrays]:
        """Return the models that clients evaluate, given those that came."""
        return models


class PerClientHook(ClientHook):
    """A hook that works client by client."""

    def before(self, batch: ClientBatch) -> None:
        """Look at each client."""
        for row in batch.rows:
            self.before_one(row)

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Look at what came of each client."""
        if type(self).after_one is PerClientHook.after_one:
            return outcomes
        before = list(outcomes)
        after = list(map(self.after_one, batch.rows, before))
        changed = any(new is not old for new, old in zip(after, before, strict=True))
        return Outcomes.of(after) if changed else outcomes

    def before_one(self, row: ClientRow) -> None:
        """Look at what came to one client."""

    def after_one(self, row: ClientRow, outcome: Outcome) -> Outcome:
        """Look at what came of it."""
        return outcome
