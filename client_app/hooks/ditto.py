"""Ditto's personal model: trained after the global one, kept, and evaluated in its place."""

from collections.abc import Sequence
from dataclasses import replace

from ...core.config import RunConfig
from ...core.learning.job import Outcomes
from ...core.learning.objectives.ditto import GLOBAL, Pulled
from ...core.learning.train_settings import train_settings
from ..batch import Arrays, ClientBatch
from .base import ClientHook
from .moon import shapes

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
