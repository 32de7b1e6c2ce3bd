"""The file that ``forager new-task`` writes."""

TEMPLATE = '''"""My own task: the data and a model. Written by `forager new-task`; make it yours.

Try it:      forager run --local -c "{keys}"
Compare:     forager compare fedavg cosage -c "{keys}"
By Flower:   forager run -c "{keys}"
             (put this file into the project folder, so that it travels with the app)
"""

import numpy as np
from torch import nn


def load():
    """Return the data: numpy arrays under these names.

    x_train, y_train    what clients train on; y holds classes 0, 1, 2, ..., or numbers with a
                        fraction for regression (other problems: docs/problems.md)
    x_test, y_test      what the server tests on; clients never see it
    user_train          optional: whose a sample is; partition='natural' makes owners clients
    user_test           optional: the same for test samples

    Scale the inputs, or training may diverge: mean 0 and standard deviation 1 will do, here or
    with data.scale='standard' in the run config.
    Replace the example below, two moons of noisy points, by your own data, say
    `pandas.read_csv(...)` or `np.load(...)`. A device reads its own file instead.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    angle = rng.uniform(0, np.pi, 2000) + np.pi * y
    x = np.stack([np.cos(angle) + y - 0.5, np.sin(angle) + 0.25 * (1 - 2 * y)], axis=1)
    x = (x + rng.normal(0, 0.3, x.shape)).astype(np.float32)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    owner = rng.integers(0, 8, 2000)  # eight owners
    return {{
        "x_train": x[:1600],
        "y_train": y[:1600],
        "user_train": owner[:1600],
        "x_test": x[1600:],
        "y_test": y[1600:],
    }}


def build(input_shape, num_classes):
    """Return the model for inputs of this shape: any torch.nn.Module with one output per class.

    Methods that look at the last layer (GCFL, ODE) need it to be an nn.Linear.
    """
    return nn.Sequential(
        nn.Flatten(), nn.Linear(input_shape[0], 32), nn.ReLU(), nn.Linear(32, num_classes)
    )
'''


def task_file(module: str) -> str:
    """Return the text of a task's file.

    >>> "task='mine:load'" in task_file("mine")
    True
    """
    return TEMPLATE.format(keys=run_keys(module))


def run_keys(module: str) -> str:
    """Return the run config that runs it."""
    return f"task='{module}:load' model='{module}:build' partition='natural' num-clients=8"
