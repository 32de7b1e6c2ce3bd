"""How diabetes progressed in 442 patients, from ten measurements each: a regression.

Efron, Hastie, Johnstone and Tibshirani, "Least Angle Regression", 2004. It comes with scikit-learn.
The target is divided by 100, so that the usual learning rates suit it.
"""

import numpy as np

from ..spec import TaskSpec
from ..splits import generator, hold_out
from .raw import RawData
from .storage import Arrays, cache_folder, cached_arrays

TEST_SHARE = 0.25


def load(spec: TaskSpec) -> RawData:
    """Measurements scaled to unit variance; a seeded quarter of the patients is the test pool."""
    arrays = cached_arrays(cache_folder(spec.cache_dir), "diabetes-1", _read)
    x, y = arrays["x"], arrays["y"]
    train, test = hold_out(len(y), TEST_SHARE, generator(spec.seed, "diabetes"))
    return RawData(x[train], y[train], x[test], y[test], problem="regression")


def _read() -> Arrays:
    from sklearn.datasets import load_diabetes  # takes over a second to import

    x, y = load_diabetes(return_X_y=True)
    return {"x": (x / x.std(axis=0)).astype(np.float32), "y": (y / 100).astype(np.float32)}
