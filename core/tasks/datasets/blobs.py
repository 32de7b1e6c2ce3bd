"""The motivating experiment of GCFL (section 2): ten Gaussian blobs of unequal width.

Sivasubramanian et al., "Gradient Coreset for Federated Learning", 2024. The paper gives the blobs
(ten, isotropic, in R^10, standard deviations from 1 to 8, scikit-learn's generator) and the share
of the test set (15 %). It does not give the number of samples: 10,000 here.
"""

import numpy as np

from ..spec import TaskSpec
from ..splits import generator, stratified_split
from .raw import RawData
from .storage import Arrays, cache_folder, cached_arrays

SAMPLES = 10_000
BLOBS = 10
DIMENSIONS = 10
# With the default validation share of 0.2 the server tests on 15 % of all samples.
TEST_POOL_SHARE = 0.15 / 0.8


def load(spec: TaskSpec) -> RawData:
    """Blobs drawn with the task's seed, one class each."""
    folder = cache_folder(spec.cache_dir)
    arrays = cached_arrays(folder, f"blobs-1-{spec.seed}", lambda: _draw(spec.seed))
    x, y = arrays["x"], arrays["y"]
    test, train = stratified_split(y, TEST_POOL_SHARE, generator(spec.seed, "blobs"))
    return RawData(x[train], y[train], x[test], y[test], num_classes=BLOBS)


def _draw(seed: int) -> Arrays:
    from sklearn.datasets import make_blobs  # takes over a second to import

    points, labels = make_blobs(
        n_samples=SAMPLES,
        n_features=DIMENSIONS,
        centers=BLOBS,
        cluster_std=np.linspace(1, 8, BLOBS),
        random_state=seed % 2**32,
    )
    return {"x": points.astype(np.float32), "y": labels.astype(np.int64)}
