"""Handler of ``train``: train on the clients' data, with what the run's methods do around it."""

from time import perf_counter

from ...core.wire.keys import ARRAYS, SECONDS
from ...core.wire.replies import Replies
from ..batch import ClientBatch
from ..device.held_models import with_held_models


@with_held_models
def train_clients(batch: ClientBatch) -> Replies:
    """Train every client from the model it was sent or holds, on its own data."""
    started = perf_counter()
    batch.prepare()
    outcomes = batch.side.train(batch)
    for hook in batch.side.hooks:
        outcomes = hook.after(batch, outcomes)
    batch.metrics.setdefault(SECONDS, [(perf_counter() - started) / len(batch)] * len(batch))
    if not batch.sends_update:
        batch.stacks[ARRAYS] = outcomes.arrays
    batch.close()
    return batch.replies(note=batch.side.note)
