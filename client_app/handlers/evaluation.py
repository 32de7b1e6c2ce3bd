"""Handler of ``evaluate``: how good a model is on the clients' own test data."""

from collections.abc import Sequence
from dataclasses import replace

from ...core.learning.batches import batch_seed
from ...core.learning.evaluation import evaluate_all
from ...core.learning.job import Job
from ...core.learning.objectives.plain import Plain
from ...core.learning.train_settings import train_settings
from ...core.tasks.errors import SayableError
from ...core.wire.keys import NUM_EXAMPLES
from ...core.wire.replies import Replies
from ..batch import Arrays, Batch
from ..device.held_models import with_held_models
from ..side import check_frozen


@with_held_models
def evaluate_clients(batch: Batch) -> Replies:
    """Evaluate the model each client was sent or holds on the client's own test data."""
    data = [held.test for held in batch.holdings]
    for key, samples in zip(batch.keys, data, strict=True):
        if not len(samples):
            raise SayableError(f"client {key!r} has no test data: set data.client-test-share")
    side = batch.side
    check_frozen(batch)
    models = _own_models(batch)
    found = evaluate_all(side.trainer.model, models, data, side.problem, side.metrics)
    batch.metrics[NUM_EXAMPLES] = list(map(len, data))
    names = dict.fromkeys(name for own in found for name in own)
    batch.metrics |= {name: [own.get(name) for own in found] for name in names}
    return batch.replies()


def _own_models(batch: Batch) -> Sequence[Arrays]:
    """Return the models that came, fine-tuned on the clients' own data if the run says so."""
    config = batch.config
    if not config.personalise.epochs:
        return batch.models
    seeds = [batch_seed(config.seed, key, 0) for key in batch.keys]
    jobs = list(map(Job, batch.models, batch.data, seeds))
    settings = replace(train_settings(config, 1), epochs=config.personalise.epochs, steps=0)
    return [own.arrays for own in batch.side.trainer.train(jobs, settings, Plain(config))]
