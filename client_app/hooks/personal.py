"""Parts of the model that a client keeps: they are trained with the rest and never sent."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.learning.job import Outcomes
from ...core.learning.personal import kept_names
from ..batch import Arrays, ClientBatch
from .base import ClientHook
from .moon import shapes

_SECTION = "personal"


class PersonalParts(ClientHook):
    """Train from the client's own parts; send the server's back, so that they do not change."""

    def before(self, batch: ClientBatch) -> None:
        """Put the client's own parts in place of the server's."""
        batch.memo[self] = batch.models
        batch.models = self.own_models(batch, batch.models)

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Keep what was trained of them; what others see starts and ends with the server's."""
        batch.models = received = batch.memo[self]
        arrays = dict(outcomes.arrays)
        names = kept_names(batch.side.trainer.model, batch.config.personalise.keep)
        for row in batch.rows:
            row.state[_SECTION] = {name: np.array(arrays[name][row.place]) for name in names}
        arrays |= {name: np.stack([model[name] for model in received]) for name in names}
        return replace(outcomes, arrays=arrays)

    def own_models(self, batch: ClientBatch, models: Sequence[Arrays]) -> Sequence[Arrays]:
        """Return the models with the clients' own parts, as far as they have trained any."""
        kept: list[dict[str, Any]] = [row.state.get(_SECTION, {}) for row in batch.rows]
        return [
            {**model, **own} if own and shapes(own).items() <= shapes(model).items() else model
            for model, own in zip(models, kept, strict=True)
        ]
