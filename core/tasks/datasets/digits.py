"""Handwritten digits that come with scikit-learn: 1,797 images of 8 x 8 pixels, 10 classes."""

import numpy as np

from ..spec import TaskSpec
from ..splits import generator, stratified_split
from .raw import RawData
from .storage import Arrays, cache_folder, cached_arrays

TEST_SHARE = 0.2


def load(spec: TaskSpec) -> RawData:
    """Digits as (1, 8, 8) images in [0, 1]; a seeded, stratified fifth is the test pool."""
    arrays = cached_arrays(cache_folder(spec.cache_dir), "digits-1", _read)
    x, y = arrays["x"], arrays["y"]
    test, train = stratified_split(y, TEST_SHARE, generator(spec.seed, "digits"))
    return RawData(x[train], y[train], x[test], y[test], num_classes=10)


def _read() -> Arrays:
    from sklearn.datasets import load_digits  # takes over a second to import

    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return {"x": images, "y": labels.astype(np.int64)}
