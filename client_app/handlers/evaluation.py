"""Handler of ``evaluate``: how good a model is on the clients' own test data."""

from collections.abc import Sequence

from ...core.learning.batches import batch_seed
from ...core.learning.evaluation import evaluate_all
from ...core.learning.serving import served_models, tune
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
    batch.metrics |= {name: [own[name] for own in found] for name in found[0]}
    return batch.replies()


def _own_models(batch: Batch) -> Sequence[Arrays]:
    """Return what clients get: the models that came, or tuned on their own data."""
    config, trainer = batch.config, batch.side.trainer
    if config.serving == "best":
        return served_models(trainer, batch.models, batch.data, batch.keys, config)
    seeds = [batch_seed(config.seed, key, 0) for key in batch.keys]
    return tune(trainer, batch.models, batch.data, seeds, config, config.personalise.epochs)
