"""Data sets of a given shape for speed measurements, as tasks that a run config can name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits


def digits_60k() -> dict[str, NDArray[Any]]:
    """Return scikit-learn's digits, repeated up to 60,000: 60 for each of 1,000 clients."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    rows = np.arange(60_000) % len(x)
    return {"x_train": x[rows], "y_train": y[rows], "x_test": x, "y_test": y}


def fashion_like() -> dict[str, NDArray[Any]]:
    """Return 3,000 random images of Fashion-MNIST's shape: content does not matter for speed."""
    rng = np.random.default_rng(0)
    x = rng.random((3_200, 1, 28, 28), dtype=np.float32)
    y = rng.integers(0, 10, 3_200)
    y[:10] = y[3_000:3_010] = np.arange(10)
    return {"x_train": x[:3_000], "y_train": y[:3_000], "x_test": x[3_000:], "y_test": y[3_000:]}
