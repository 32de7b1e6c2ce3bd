"""Handler of ``query.moments``: number of samples, and mean and spread of their inputs."""

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.tasks import Samples
from ...core.tasks.scaling import check_inputs
from ...core.wire.keys import MEAN, NUM_EXAMPLES, SPREAD
from ...core.wire.replies import Replies
from ..batch import ClientBatch

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
