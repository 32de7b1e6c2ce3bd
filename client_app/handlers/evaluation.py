"""Handler of ``evaluate``: how good a model is on the clients' own test data."""

from collections.abc import Sequence

from ...core.learning.evaluation import evaluate_all
from ...core.learning.job import batch_seed
from ...core.learning.serving import served_models, tune
from ...core.tasks import Metric, Samples
from ...core.wire.keys import AS_IT_CAME, NUM_EXAMPLES
from ...core.wire.replies import Replies
from ..batch import Arrays, ClientBatch
from ..device.held_models import with_held_models
from ..side import check_frozen


@with_held_models
def evaluate_clients(batch: ClientBatch) -> Replies:
    """Evaluate the model each client was sent or holds on the client's own test data.

    A client that is too small to hold any out says that it has none.
    """
    data = [held.test for held in batch.holdings]
    side = batch.side
    check_frozen(batch)
    models = _tuned_models(batch)
    if AS_IT_CAME in batch.told:
        main = side.metrics[:1]
        plain = _of_able(batch, own_models(batch), data, main)
        batch.metrics[AS_IT_CAME] = [own.get(main[0].name) for own in plain]
    found = _of_able(batch, models, data, side.metrics)
    batch.metrics[NUM_EXAMPLES] = list(map(len, data))
    names = dict.fromkeys(name for own in found for name in own)
    batch.metrics |= {name: [own.get(name) for own in found] for name in names}
    return batch.replies()


def _of_able(
    batch: ClientBatch,
    models: Sequence[Arrays],
    data: Sequence[Samples],
    metrics: Sequence[Metric],
) -> list[dict[str, float]]:
    """Return what each client's model reaches; nothing for those without test data."""
    able = [row for row, samples in enumerate(data) if len(samples)]
    some = [models[row] for row in able], [data[row] for row in able]
    told = evaluate_all(batch.side.trainer.model, *some, batch.side.problem, metrics)
    by_row = dict(zip(able, told, strict=True))
    return [by_row.get(row, {}) for row in range(len(data))]


def own_models(batch: ClientBatch) -> Sequence[Arrays]:
    """Return the models that came, with what clients keep of their own."""
    models = batch.models
    for hook in batch.side.hooks:
        models = hook.own_models(batch, models)
    return models


def _tuned_models(batch: ClientBatch) -> Sequence[Arrays]:
    """Return what clients get: their own models, or these tuned on their own data."""
    config, models, trainer = batch.config, own_models(batch), batch.side.trainer
    if config.serving == "best":
        return served_models(trainer, models, batch.data, batch.keys, config)
    seeds = [batch_seed(config.seed, key, 0) for key in batch.keys]
    return tune(trainer, models, batch.data, seeds, config, config.personalise.epochs)
