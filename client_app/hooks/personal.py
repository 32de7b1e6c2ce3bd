"""Personal models: parts that a client keeps (FedPer, FedBN), or a second model (Ditto)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.config import RunConfig
from ...core.learning.job import Outcomes
from ...core.learning.objectives.ditto import GLOBAL, Pulled
from ...core.learning.personal import kept_names
from ...core.learning.train_settings import train_settings
from ..batch import Arrays, ClientBatch
from .base import ClientHook
from .moon import shapes

_OWN_PARTS = "personal"


class PersonalParts(ClientHook):
    """Train from the client's own parts; return the server's parts unchanged."""

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
            row.state[_OWN_PARTS] = {name: np.array(arrays[name][row.place]) for name in names}
        arrays |= {name: np.stack([model[name] for model in received]) for name in names}
        return replace(outcomes, arrays=arrays)

    def own_models(self, batch: ClientBatch, models: Sequence[Arrays]) -> Sequence[Arrays]:
        """Return the models with the clients' own parts, as far as they have trained any."""
        kept: list[dict[str, Any]] = [row.state.get(_OWN_PARTS, {}) for row in batch.rows]
        return [
            {**model, **own} if own and shapes(own).items() <= shapes(model).items() else model
            for model, own in zip(models, kept, strict=True)
        ]


_SECTION = "ditto"


class PersonalModel(ClientHook):
    """Train the personal model on the same data; its first one is the global model."""

    def __init__(self, config: RunConfig) -> None:
        self.objective = Pulled(config)

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Train and keep personal models; what is sent is the global one."""
        own = self.own_models(batch, batch.models)
        jobs = [
            replace(job, arrays=start, carried={GLOBAL: sent})
            for job, start, sent in zip(batch.jobs(), own, batch.models, strict=True)
        ]
        settings = train_settings(batch.config, batch.round)
        trained = batch.side.trainer.train(jobs, settings, self.objective)
        for row, personal in zip(batch.rows, trained, strict=True):
            row.state[_SECTION] = {name: array.copy() for name, array in personal.arrays.items()}
        return outcomes

    def own_models(self, batch: ClientBatch, models: Sequence[Arrays]) -> Sequence[Arrays]:
        """Return the clients' personal models; the global one of those that have none yet."""
        kept = [row.state.get(_SECTION, {}) for row in batch.rows]
        fits = [shapes(own) == shapes(sent) for own, sent in zip(kept, models, strict=True)]
        return [o if fit else m for o, m, fit in zip(kept, models, fits, strict=True)]
