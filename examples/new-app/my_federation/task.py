"""What is learned: data, model, loss and metrics. Replace the example by your own."""

import numpy as np
from forager.core.tasks import Classification
from torch import nn
from torch.nn import functional


class Task(Classification):
    """Two moons of noisy points, which eight owners hold in different shares.

    Other kinds of problems derive from Regression, MultiLabel, Segmentation or NextToken.
    """

    metrics = ("accuracy", "macro-f1")  # the first decides

    def data(self):
        """Return all samples of a simulation; the server tests on those named test.

        A device trains on its own .npz file instead, with x_train and y_train.
        """
        rng = np.random.default_rng(0)
        owner = rng.integers(0, 8, 2000)
        y = (rng.random(2000) < (owner + 1) / 9).astype(np.int64)
        angle = rng.uniform(0, np.pi, 2000) + np.pi * y
        x = np.stack([np.cos(angle) + y - 0.5, np.sin(angle) + 0.25 * (1 - 2 * y)], axis=1)
        x = (x + rng.normal(0, 0.4, x.shape)).astype(np.float32)
        return {
            "x_train": x[:1600],
            "y_train": y[:1600],
            "user_train": owner[:1600],
            "x_test": x[1600:],
            "y_test": y[1600:],
        }

    def model(self):
        """Return a new model. Some methods look at its last layer: let it be an nn.Linear."""
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))

    def loss(self, outputs, targets):
        """Return one loss per sample."""
        return functional.cross_entropy(outputs, targets, reduction="none")
