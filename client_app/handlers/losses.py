"""Handler of ``query.losses``: the loss of several models on the clients' data, as IFCA asks."""

from flwr.app import ArrayRecord

from ...core.learning.evaluation import mean_losses
from ...core.wire.keys import LOSSES, NUM_EXAMPLES
from ...core.wire.replies import Replies
from ..batch import ClientBatch


def answer_losses(batch: ClientBatch) -> Replies:
    """Report the loss of each model in a message, in the order of their names."""
    data, trainer = batch.data, batch.side.trainer
    names = sorted(n for n, r in batch.requests.content(0).items() if type(r) is ArrayRecord)
    columns = [
        mean_losses(trainer.model, batch.arrays(name), data, trainer.problem) for name in names
    ]
    losses = [list(own) for own in zip(*columns, strict=True)]
    return batch.replies({NUM_EXAMPLES: list(map(len, data)), LOSSES: losses})
