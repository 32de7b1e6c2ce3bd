"""Handler of ``train``: train on the clients' data, with what the run's methods do around it."""

from time import perf_counter

from ...core.wire.keys import ARRAYS, FROZEN, NUM_EXAMPLES, SECONDS, TRAIN_LOSS
from ...core.wire.replies import Replies
from ..batch import Batch
from ..device.held_models import with_held_models


@with_held_models
def train_clients(batch: Batch) -> Replies:
    """Train every client from the model it was sent or holds, on its own data."""
    started = perf_counter()
    batch.prepare()
    jobs = batch.jobs()
    check_frozen(batch)
    outcomes = batch.side.train(jobs, batch.round)
    batch.metrics[NUM_EXAMPLES] = [
        trained if told is None else told
        for trained, told in zip(outcomes.num_examples, batch.counts_for, strict=True)
    ]
    batch.metrics[TRAIN_LOSS] = outcomes.losses
    for hook in batch.side.hooks:
        outcomes = hook.after(batch, outcomes)
    batch.metrics[SECONDS] = [(perf_counter() - started) / len(batch)] * len(batch)
    if not batch.sends_update:
        batch.stacks[ARRAYS] = outcomes.arrays
    batch.close()
    return batch.replies(note=batch.side.note)


def check_frozen(batch: Batch) -> None:
    """Refuse to work on a model whose frozen part is not the server's."""
    expected = batch.told.get(FROZEN)
    if expected is not None and expected != batch.side.trainer.frozen:
        raise ValueError(
            "the parameters that are not trained differ between server and client: both must "
            "build the model from the same weights (task, model, seed, pretrained files)"
        )
