"""Runs on the local engine that also measure the class that the model does worst on.

A selector that hardly ever takes the holders of a class can hide behind a good mean. This is a
runner for :func:`tools.experiments.sweep.sweep`: its rows have one column more, ``worst-class``.
"""

import logging
from typing import Any

import torch
from flwr.app import ArrayRecord
from torch import nn

from ..core.config import Scalar, default_config, read_config
from ..core.learning.model_arrays import load_arrays
from ..core.tasks import Samples, load_task
from ..core.wire.arrays import from_record
from ..server_app.app import build_loop, configure_logging
from ..tools.engine.local import LocalResult
from ..tools.engine.local_grid import LocalGrid
from ..tools.report.history import History

RUNNER = "forager.benchmarks.worst_class:run_watched"


def run_watched(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Run one federated training as :func:`tools.engine.run_local` does, and watch classes."""
    configure_logging(logging.WARNING if quiet else logging.INFO)
    run_config: dict[str, Any] = {**default_config(), **overrides}
    config = read_config(run_config)
    task = load_task(config.task_spec())
    folder, loop = build_loop(LocalGrid(config.num_clients, run_config), run_config)
    worst: dict[int, float] = {}
    model, test, plain = task.build_model(), task.server_data().test, loop.evaluate

    def evaluate(arrays: ArrayRecord) -> dict[str, float]:
        worst[loop.grid.round] = worst_class_accuracy(model, arrays, test)
        return plain(arrays)

    loop.evaluate = evaluate
    reason = loop.run()
    rows = History.from_events(folder.read_events()).rows
    rounds = [{"round": n, **rows[n], "worst-class": worst.get(n)} for n in sorted(rows)]
    return LocalResult(folder.path, reason, rounds)


def worst_class_accuracy(model: nn.Module, arrays: ArrayRecord, data: Samples) -> float:
    """Return the lowest accuracy that a model has on the samples of any one class.

    >>> from forager.core.wire.arrays import to_record
    >>> identity = to_record({"weight": torch.eye(2).numpy()})
    >>> from forager.core.tasks import Split
    >>> data = Split(torch.tensor([[1.0, 0], [0, 1], [1, 0]]), torch.tensor([0, 1, 1]))
    >>> worst_class_accuracy(nn.Linear(2, 2, bias=False), identity, data)
    0.5
    """
    return min(class_accuracies(model, arrays, data).values())


@torch.no_grad()
def class_accuracies(model: nn.Module, arrays: ArrayRecord, data: Samples) -> dict[int, float]:
    """Return the accuracy on the samples of each class that there are samples of."""
    load_arrays(model, from_record(arrays))
    model.eval()
    guesses = [model(data.x[i : i + 512]).argmax(1) for i in range(0, len(data), 512)]
    right = (torch.cat(guesses) == data.y).double()
    held = torch.bincount(data.y)
    share = torch.bincount(data.y, weights=right) / held
    return {label: float(share[label]) for label in held.nonzero().ravel().tolist()}
