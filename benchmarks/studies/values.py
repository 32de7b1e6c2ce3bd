"""A runner that asks how a sample's value depends on the layers and on the model it is read at.

The value of a sample (eq. 6 of ODE) is the projection of its gradient on the global one. The
simplified version reads it off the last layer (table 3 and figure 7c of the paper), and a device
reads it long before the sample is trained on (figure 7b).
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from scipy.stats import spearmanr
from torch import nn

from ...core.config import Scalar, default_config, read_config
from ...core.learning.model_arrays import load_arrays
from ...core.learning.sample_values import HeadValuation, LayersValuation
from ...core.tasks import load_task
from ...core.wire.arrays import from_record
from ...server_app.app import build_loop, configure_logging
from ...tools.engine.local import LocalResult
from ...tools.engine.local_grid import LocalGrid

LOOKED_AT = 500  # samples whose values are compared
_TIMED = 100  # of these, one at a time


def run_values(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Return one row: rank agreements of values, and milliseconds of CPU per sample."""
    configure_logging(logging.WARNING if quiet else logging.INFO)
    run_config: dict[str, Any] = {**default_config(), **overrides}
    config = read_config(run_config)
    task, last = load_task(config.task_spec()), list[ArrayRecord]()
    held = [task.client_data(i, config.num_clients).train for i in range(config.num_clients)]
    x, y = torch.cat([each.x for each in held]), torch.cat([each.y for each in held])
    some = np.random.default_rng(config.seed).permutation(len(y))[:LOOKED_AT]
    model = task.build_model()
    early = _values(HeadValuation(model), x, y, some)
    _, loop = build_loop(LocalGrid(config.num_clients, run_config), run_config)
    plain = loop.evaluate

    def evaluate(arrays: ArrayRecord) -> dict[str, float]:
        last[:] = [arrays]
        return plain(arrays)

    loop.evaluate = evaluate
    reason = loop.run()
    load_arrays(model, from_record(last[-1]))
    head, layers = HeadValuation(model), LayersValuation(model, 0)
    by_head, by_all = (_values(look, x, y, some) for look in (head, layers))
    row = {
        "round": config.num_server_rounds,
        "agreement of layers": _ranks_agree(by_head, by_all),
        "agreement of rounds": _ranks_agree(early, by_head),
        **{f"ms of {name}": ms for name, ms in _milliseconds(model, x[some], y[some]).items()},
    }
    return LocalResult(Path(str(overrides.get("output-dir", "."))), reason, [row])


def _values(
    look: HeadValuation | LayersValuation, x: torch.Tensor, y: torch.Tensor, some: np.ndarray
) -> np.ndarray:
    """Return the values of some samples by the gradient of all of them."""
    direction = look.look(x, y, None).mean_gradient
    values = look.look(x[some], y[some], direction).values
    assert values is not None  # there was a direction
    return values


def _ranks_agree(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation.

    >>> _ranks_agree(np.array([1.0, 2, 4]), np.array([10.0, 20, 30]))
    1.0
    """
    return float(round(spearmanr(first, second).statistic, 12))


def _milliseconds(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """Return the CPU time of a look at one sample: its loss, and its value by either version."""
    head, layers = HeadValuation(model), LayersValuation(model, 0)
    rng = np.random.default_rng(0)
    one, every = (rng.normal(size=each.size).astype(np.float32) for each in (head, layers))

    @torch.no_grad()
    def loss(a: torch.Tensor, b: torch.Tensor) -> object:
        return nn.functional.cross_entropy(model(a), b)

    looks: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
        "the loss": loss,
        "the last layer": lambda a, b: head.look(a, b, one),
        "all layers": lambda a, b: layers.look(a, b, every),
    }
    found: dict[str, float] = {}
    for name, look in looks.items():
        look(x[:1], y[:1])  # what is done once
        started = time.process_time()
        for i in range(_TIMED):
            look(x[i : i + 1], y[i : i + 1])
        found[name] = 1000 * (time.process_time() - started) / _TIMED
    return found
