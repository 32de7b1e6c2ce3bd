"""Synthetic(alpha, beta): users that differ in their model and in their inputs.

Li et al., "Federated Optimization in Heterogeneous Networks" (FedProx), 2020, section 5.1: user k
labels an input by y = argmax(softmax(W x + b)) with the entries of W and b from N(u_k, 1) and
u_k from N(0, alpha); inputs are from N(v_k, S), S diagonal with S_jj = j^-1.2, the entries of v_k
from N(B_k, 1) and B_k from N(0, beta). Here alpha and beta are standard deviations, as in the
generator that everyone compares with. Users are unequally large: log-normal(4, 2) + 50 samples.
"""

import numpy as np
from numpy.typing import NDArray

from ..spec import TaskSpec
from ..splits import generator
from .raw import RawData

USERS = 200
DIMENSIONS = 60
CLASSES = 10
TEST_SHARE = 0.1
ALPHA, BETA = 1.0, 1.0
# One user in two hundred would be larger; the largest could be thousands of times the median.
LARGEST_USER = 10_000


def load(spec: TaskSpec) -> RawData:
    """Draw the samples of 200 users with the task's seed; a tenth of each user's are test data."""
    rng = generator(spec.seed, "synthetic")
    sizes = np.minimum(rng.lognormal(4, 2, USERS).astype(np.int64) + 50, LARGEST_USER)
    drawn = [_draw_user(size, rng) for size in sizes]
    x = np.concatenate([inputs for inputs, _ in drawn])
    y = np.concatenate([labels for _, labels in drawn])
    user = np.repeat(np.arange(USERS), sizes)
    # Samples of a user are independent draws, so its first tenth is as good as any other.
    rank = np.arange(len(user)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    test = rank < np.repeat(np.ceil(sizes * TEST_SHARE), sizes)
    return RawData(x[~test], y[~test], x[test], y[test], user[~test], user[test], CLASSES)


def _draw_user(
    size: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    model_mean, input_mean = rng.normal(0, ALPHA), rng.normal(0, BETA)
    weight = rng.normal(model_mean, 1, (DIMENSIONS, CLASSES))
    bias = rng.normal(model_mean, 1, CLASSES)
    centre = rng.normal(input_mean, 1, DIMENSIONS)
    deviations = np.arange(1, DIMENSIONS + 1) ** -0.6
    x = centre + deviations * rng.standard_normal((size, DIMENSIONS))
    return x.astype(np.float32), np.argmax(x @ weight + bias, axis=1)
