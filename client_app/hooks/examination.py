"""How the model that came fits a client's samples; samples that it confirms."""

from dataclasses import replace

import numpy as np

from ...core.learning.evaluation import evaluate_all, predictions_of_all
from ...core.learning.job import Outcomes
from ...core.learning.train_settings import TrainSettings
from ...core.tasks.metrics import ACCURACY
from ...core.wire.keys import AGREEMENT, DOUBT, LOSS, PROBED
from ...selectors.data_selectors.confirmed_labels import (
    agreement,
    label_weights,
    running_predictions,
)
from ..batch import ClientBatch
from .base import ClientHook
from .coresets import fingerprint

_SAMPLES = 256  # that the single step is of, at most


class ModelFit(ClientHook):
    """Add the loss of the model that came, and where there are classes how many labels it gives."""

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


_KEPT = "predictions"  # section of the client's state


class ConfirmedSamples(ClientHook):
    """Keep a running mean of the global model's predictions; weigh samples by it where told to."""

    def before(self, batch: ClientBatch) -> None:
        """Look at all samples with the model that came."""
        if not batch.trains or DOUBT not in batch.told or not batch.side.problem.has_classes:
            return
        sharpness = float(batch.told[DOUBT])  # 0 as long as no labels are found to be wrong
        model, data = batch.side.trainer.model, batch.data
        shares = []
        for row, seen in zip(
            batch.rows, predictions_of_all(model, batch.models, data), strict=True
        ):
            labels, mark = row.data.y.numpy(), fingerprint(row.data)
            kept = row.state.get(_KEPT)
            before = kept["mean"] if kept is not None and kept["data"] == mark else None
            mean = running_predictions(before, seen)
            row.state[_KEPT] = {"mean": mean.astype(np.float32), "data": mark}
            shares.append(agreement(seen, labels))
            if sharpness:
                weights = label_weights(mean, labels, sharpness)
                batch.weights[row.place] = weights.astype(np.float32)
        batch.metrics[AGREEMENT] = shares
