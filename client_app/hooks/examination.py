"""How the received model fits a client's samples, and how a single step changes it."""

from dataclasses import replace

from ...core.learning.evaluation import evaluate_all
from ...core.learning.job import Outcomes
from ...core.learning.train_settings import TrainSettings
from ...core.tasks.metrics import ACCURACY
from ...core.wire.keys import AGREEMENT, LOSS, PROBED
from ..batch import ClientBatch
from .base import ClientHook

_SAMPLES = 256  # that the single step is of, at most


class ModelFit(ClientHook):
    """Add the loss of the received model and, for classes, the labels that it predicts."""

    _probes = False

    def before(self, batch: ClientBatch) -> None:
        """Look at all samples."""
        side = batch.side
        self._probes = batch.trains and batch.round == 1
        if not batch.trains:
            return
        wanted = (ACCURACY,) if side.problem.has_classes else ()
        found = evaluate_all(side.trainer.model, batch.models, batch.data, side.problem, wanted)
        batch.metrics[LOSS] = [own["loss"] for own in found]
        if wanted:
            batch.metrics[AGREEMENT] = [own[ACCURACY.name] for own in found]

    def training(self, settings: TrainSettings) -> TrainSettings:
        """Take one step in round 1."""
        plain = replace(settings, optimiser="sgd", clip_norm=0.0, weight_decay=0.0)
        return replace(plain, steps=1, batch_size=_SAMPLES) if self._probes else settings

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Say of how many samples the step was."""
        if self._probes and set(outcomes.steps) == {1}:
            batch.metrics[PROBED] = [float(min(len(own), _SAMPLES)) for own in batch.data]
        return outcomes
