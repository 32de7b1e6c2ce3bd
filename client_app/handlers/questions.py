"""Handlers of questions that a method asks beside training: each answers for all clients.

- ``query.losses``: the loss of several models on the clients' data, as IFCA asks.
- ``query.update``: the model after some steps, which count for nothing else (FlexCFL, FL+HC).
- ``query.support``: which parameters matter most to each client.
- ``query.affinity``: the cohorts that suit a client, before it is matched to one.
- ``query.moments``: number of samples, and mean and spread of their inputs.
"""

from dataclasses import replace

import numpy as np
import torch
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ...core.learning.evaluation import mean_losses
from ...core.learning.train_settings import train_settings
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.tasks import Samples
from ...core.tasks.scaling import check_inputs
from ...core.wire.keys import ARRAYS, LOSSES, MEAN, NUM_EXAMPLES, PAYLOAD, SPREAD, STEPS
from ...core.wire.replies import Replies
from ..batch import ClientBatch
from ..hooks.auxo import AffinityRecords
from ..hooks.supports import SupportTeller


def answer_losses(batch: ClientBatch) -> Replies:
    """Report the loss of each model in a message, in the order of their names."""
    data, trainer = batch.data, batch.side.trainer
    names = sorted(n for n, r in batch.requests.content(0).items() if type(r) is ArrayRecord)
    columns = [
        mean_losses(trainer.model, batch.arrays(name), data, trainer.problem) for name in names
    ]
    losses = [list(own) for own in zip(*columns, strict=True)]
    return batch.replies({NUM_EXAMPLES: list(map(len, data)), LOSSES: losses})


def answer_updates(batch: ClientBatch) -> Replies:
    """Train for as many steps as a message says (0: as in a round) and send the model back."""
    jobs = batch.prepare(only="chooses_data").jobs()
    settings, steps = train_settings(batch.config, batch.round), int(batch.told[STEPS])
    settings = replace(settings, steps=steps) if steps else settings
    outcomes = batch.side.train_plainly(jobs, settings)
    batch.stacks[ARRAYS] = outcomes.arrays
    batch.close()
    return batch.replies({NUM_EXAMPLES: outcomes.num_examples})


def answer_supports(batch: ClientBatch) -> Replies:
    """Send only the support: of the received model, or without one the last support sent."""
    # First of all: a device knows the model's shape from nothing but its own data.
    examples = list(map(len, batch.data))
    hook = methods("similarity")[batch.config.similarity].hook
    teller: SupportTeller = load(hook)(batch.config)
    if any(type(record) is ArrayRecord for record in batch.requests.content(0).values()):
        jobs = batch.prepare(only="chooses_data").jobs()  # as in a round
        settings = teller.training(train_settings(batch.config, batch.round))
        outcomes = batch.side.train_plainly(jobs, settings) if teller.trains else None
        batch.squares = outcomes.squares if outcomes is not None else None
        teller.tell(batch, teller.supports(batch, outcomes), teller.form)
    else:
        teller.tell(batch, teller.held(batch), PAYLOAD)
    batch.close()
    return batch.replies({NUM_EXAMPLES: examples})


def answer_affinities(batch: ClientBatch) -> Replies:
    """Take in the feedback that came, and send the records: the affinity request (section 5.1)."""
    records = AffinityRecords(batch.config)
    for row in batch.rows:
        records.before_one(row)
        records.request(row)
    batch.close()
    return batch.replies()


_BATCH = 1024


def answer_moments(batch: ClientBatch) -> Replies:
    """Report the moments of each client's training data."""
    counts, means, spreads = zip(*map(moments, batch.data), strict=True)
    return batch.replies(
        {
            NUM_EXAMPLES: list(counts),
            MEAN: [mean.tolist() for mean in means],
            SPREAD: [spread.tolist() for spread in spreads],
        }
    )


def moments(data: Samples) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Return how many samples there are, and mean and standard deviation of each feature.

    >>> from ...core.tasks import Split
    >>> moments(Split(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.tensor([0, 1])))
    (2, array([2., 5.]), array([1., 0.]))
    """
    count = 0
    mean: NDArray[np.float64] = np.zeros(1)
    squares: NDArray[np.float64] = np.zeros(1)  # of deviations from the mean, summed up
    for inputs, _ in data.batches(_BATCH):
        x = check_inputs(inputs).double().transpose(0, 1).flatten(1)
        size, before = x.shape[1], count
        own = x.mean(dim=1).numpy()
        count += size
        apart = own - mean
        mean = mean + apart * (size / count)
        own_squares = ((x - torch.from_numpy(own)[:, None]) ** 2).sum(dim=1).numpy()
        squares = squares + own_squares + apart**2 * (before * size / count)
    return len(data), mean, np.sqrt(squares / max(count, 1))
