"""Handler of ``query.summary``: answer with what a selector wants to know, one number if possible.

- ``similarity``: the client trains on a few mini-batches and compares this proxy of its update with
  the last change of the global model, by CosAge's power-norm cosine (eq. 7).
- ``loss``: the loss of the global model on the client's training data.
- ``histogram``: how many samples of each class it holds. This is the truth that an oracle uses; it
  is answered only in simulation, where the data are the experimenter's own.
"""

from collections.abc import Callable
from typing import Any

import torch

from ...core.learning.evaluation import mean_losses
from ...core.learning.train_settings import summary_settings
from ...core.tasks.errors import SayableError
from ...core.wire.keys import HISTOGRAM, LOSS, NUM_EXAMPLES, SIMILARITY, WANTS
from ...core.wire.replies import Replies
from ..batch import ClientBatch
from ..device.held_models import with_held_models
from ..hooks.similarity import similarities


@with_held_models
def summarise_clients(batch: ClientBatch) -> Replies:
    """Answer what each client is asked; all messages of one call ask the same.

    Nothing is closed: a question changes nothing that the client keeps, but the model.
    """
    wants = str(batch.told[WANTS])
    if wants not in _ANSWERS:
        raise SayableError(f"{WANTS} = {wants!r}: expected {SIMILARITY}, {LOSS} or {HISTOGRAM}")
    values = _ANSWERS[wants](batch)
    batch.metrics = {NUM_EXAMPLES: [len(held.train) for held in batch.holdings], wants: values}
    return batch.replies()


def _similarities(batch: ClientBatch) -> list[float]:
    jobs = batch.prepare(only="chooses_data").jobs()
    # Without what objectives carry (control variates, ...): a proxy is only compared.
    proxies = batch.side.train_plainly(jobs, summary_settings(batch.config, batch.round))
    return similarities(batch, proxies.changes(batch.models))


def _losses(batch: ClientBatch) -> list[float]:
    data = batch.prepare(only="holds_data").data
    # After the data: a device knows the model's shape from nothing but its own file.
    return mean_losses(batch.side.trainer.model, batch.models, data, batch.side.problem)


def _histograms(batch: ClientBatch) -> list[list[int]]:
    if not all(row.simulated for row in batch.rows):
        raise SayableError("a device does not report how many samples of each class it holds")
    classes = batch.side.num_classes
    return [torch.bincount(held.true_labels, minlength=classes).tolist() for held in batch.holdings]


_ANSWERS: dict[str, Callable[[ClientBatch], list[Any]]] = {
    SIMILARITY: _similarities,
    LOSS: _losses,
    HISTOGRAM: _histograms,
}
