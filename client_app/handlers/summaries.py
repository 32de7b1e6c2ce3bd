"""Handler of ``query.summary``: answer with what a selector wants to know, one number if possible.

- ``similarity``: the client trains on a few mini-batches and compares this proxy of its update with
  the last change of the global model, by CosAge's power-norm cosine (eq. 7).
- ``loss``: the loss of the global model on the client's training data.
- ``histogram``: how many samples of each class it holds. This is the truth that an oracle uses; it
  is answered only in simulation, where the data are the experimenter's own.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ...core.learning.evaluation import mean_losses
from ...core.learning.job import Outcomes
from ...core.learning.objectives.plain import Plain
from ...core.learning.train_settings import summary_settings
from ...core.tasks.errors import SayableError
from ...core.wire.changes import LACKS_BASE
from ...core.wire.keys import HISTOGRAM, LOSS, NUM_EXAMPLES, SIMILARITY, WANTS
from ...core.wire.replies import Replies
from ..batch import Batch
from ..device.held_models import HeldModel, arrays_of, hold, received_models
from ..hooks.similarity import similarities


def summarise_clients(batch: Batch) -> Replies:
    """Answer what each client is asked; all messages of one call ask the same."""
    wants = str(batch.told[WANTS])
    if wants == HISTOGRAM:
        values: list[Any] = _histograms(batch)
    elif wants in (SIMILARITY, LOSS):
        values = _about_models(batch, wants)
    else:
        raise SayableError(f"{WANTS} = {wants!r}: expected {SIMILARITY}, {LOSS} or {HISTOGRAM}")
    batch.metrics = {NUM_EXAMPLES: [len(held.train) for held in batch.holdings], wants: values}
    if None in values:
        batch.metrics[LACKS_BASE] = [1 if value is None else None for value in values]
    return batch.replies()


def _about_models(batch: Batch, wants: str) -> list[float | None]:
    """Return what each client finds; None where it lacks the model that its own builds on."""
    models = received_models(batch)
    able = [row for row, model in enumerate(models) if model is not None]
    known = [model for model in models if model is not None]
    values: list[float | None] = [None] * len(batch)
    if not able:
        return values
    some = batch if len(able) == len(batch) else batch.select(able)
    some.models = arrays_of(known)
    # Nothing is closed: a question changes nothing that the client keeps, but the model.
    found = _losses(some) if wants == LOSS else _similarities(some, known)
    for row, model, value in zip(able, known, found, strict=True):
        values[row] = value
        hold(model, batch.contexts[row])
    return values


def _similarities(batch: Batch, models: Sequence[HeldModel]) -> list[float]:
    jobs = batch.prepare(only="chooses_data").jobs()
    # Without what objectives carry (control variates, ...): a proxy is only compared.
    settings, plain = summary_settings(batch.config, batch.round), Plain(batch.config)
    proxies = Outcomes.of(batch.side.trainer.train(jobs, settings, plain))
    return similarities(batch, proxies.changes(batch.models), models)


def _losses(batch: Batch) -> list[float]:
    data = batch.prepare(only="holds_data").data
    # After the data: a device knows the model's shape from nothing but its own file.
    return mean_losses(batch.side.trainer.model, batch.models, data, batch.side.problem)


def _histograms(batch: Batch) -> list[list[int]]:
    if not all(row.simulated for row in batch.rows):
        raise SayableError("a device does not report how many samples of each class it holds")
    classes = batch.side.num_classes
    return [torch.bincount(held.true_labels, minlength=classes).tolist() for held in batch.holdings]
