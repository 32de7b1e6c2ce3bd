"""A runner that asks what a rule for streams costs a device: memory, and time per sample.

Samples are offered one at a time, as in table 3 of the ODE paper: the model looks at a sample where
the rule asks for it, and the rule keeps or drops it. What arrives in messages is left out.
"""

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from ...core.config import RunConfig, Scalar, default_config, read_config
from ...core.learning.sample_values import HeadValuation, LayersValuation, valuation
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.stream import StreamSettings
from ...core.tasks import load_task
from ...selectors.stream_selectors.base import Offered, StreamSelector
from ...selectors.stream_selectors.ode import RunningGradient
from ...tools.engine.local import LocalResult

OFFERED = 400  # samples; the first quarter is not timed


class Device:
    """A device that holds what its rule needs, and is offered samples."""

    def __init__(self, config: RunConfig, x: torch.Tensor, y: torch.Tensor) -> None:
        task = load_task(config.task_spec())
        self.x, self.y = x, y
        self.model = task.build_model()
        places, core = (
            config[StreamSettings].capacity,
            methods("data-selector")[config.data_selector].core,
        )
        self.rule: StreamSelector = load(core)(places, config.seed)
        self.look: HeadValuation | LayersValuation | None = None
        self.estimate: np.ndarray | None = None
        self.running = RunningGradient()
        if self.rule.needs != "nothing":
            self.look = valuation(self.model, config, task.problem)
        if self.look is not None and self.rule.needs == "value":
            rng = np.random.default_rng(config.seed)  # what it costs does not depend on where to
            self.estimate = rng.normal(size=self.look.size).astype(np.float32)

    def offer(self, place: int) -> None:
        """Look at one sample, if the rule asks for it, and keep or drop it."""
        key, label = np.array([place]), self.y[place : place + 1]
        batch = Offered(key, label.numpy())
        if self.look is not None:
            seen = self.look.look(self.x[place : place + 1], label, self.estimate)
            batch = Offered(key, label.numpy(), seen.losses, seen.norms, seen.values)
            if self.estimate is not None:
                self.running.update(seen.mean_gradient)
        self.rule.offer(batch)

    def held(self) -> int:
        """Return the bytes that it holds between two samples, besides those that are stored."""
        model = self.model.state_dict() if self.look is not None else {}
        arrays = {name: value.numpy() for name, value in model.items()}
        return sum(map(size_of, (arrays, self.estimate, self.running.mean, self.rule.state_dict())))


def run_device(overrides: dict[str, Scalar], *, quiet: bool = True) -> LocalResult:
    """Return one row: bytes held, bytes more during a look, and milliseconds of CPU per sample."""
    run_config: dict[str, Any] = {**default_config(), **overrides}
    config = read_config(run_config)
    task = load_task(config.task_spec())
    parts = [task.client_data(i, config.num_clients).train for i in range(config.num_clients)]
    x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
    some = np.random.default_rng(config.seed).permutation(len(y))[:OFFERED]
    device, warm = Device(config, x[some], y[some]), len(some) // 4
    for place in range(warm):
        device.offer(place)
    started = time.process_time()
    for place in range(warm, len(some)):
        device.offer(place)
    seconds = time.process_time() - started
    row = {
        "round": 1,
        "ms of an offer": 1000 * seconds / (len(some) - warm),
        "bytes of what is held": device.held(),
        "bytes of a look": _peak(device),
    }
    return LocalResult(Path(str(overrides.get("output-dir", "."))), "completed", [row])


def size_of(value: object) -> int:
    """Return the bytes of what a state holds; numbers count as eight.

    >>> size_of({"values": [0.5, 2], "mean": np.zeros(3, dtype=np.float32), "none": None})
    28
    """
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    return 0 if value is None else len(value) if isinstance(value, str | bytes) else 8


def _peak(device: Device) -> int:
    """Return the most bytes of tensors that are alive at once during an offer."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        device.offer(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    taken = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    return int(max(np.cumsum([0, *(size for _, size in taken)])))
