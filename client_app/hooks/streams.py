"""Training on what a stream left behind."""

from collections.abc import Generator, Sequence
from typing import TypeVar

import numpy as np

from ...core.config import RunConfig
from ...core.learning.job import Outcomes
from ...core.learning.sample_values import Looked, looked_at_all
from ...core.methods.ode import OdeSettings, ode_method
from ...core.tasks.errors import SayableError
from ...core.wire.arrays import to_record
from ...core.wire.keys import ESTIMATE
from ..batch import Batch
from ..device.stream_device import Look, StreamDevice
from .base import ClientHook

Found = TypeVar("Found")


class StreamedData(ClientHook):
    """Keep or drop what arrived, then train on the store with the plan's weights (eq. 12)."""

    chooses_data = holds_data = True

    def __init__(self, config: RunConfig) -> None:
        reported = config[OdeSettings].estimator not in ("exact", "none")
        self.estimates = ode_method(config) is not None and reported

    def before(self, batch: Batch) -> None:
        """Catch up with the streams, take in what the messages bring, and offer the stores."""
        devices = batch.memo[self] = [StreamDevice(row) for row in batch.rows]
        look_together(batch, [device.meet() for device in devices])
        for row, device in zip(batch.rows, devices, strict=True):
            if not len(device.store):
                if len(batch) == 1:
                    row.close()  # it cannot train, but what it saw is not forgotten
                raise SayableError(f"client {row.key!r}: nothing that arrived has been kept yet")
        pairs = [device.samples() for device in devices]
        batch.data = [samples for samples, _ in pairs]
        batch.weights = [weights for _, weights in pairs]
        batch.counts_for = [device.counts_for() for device in devices]

    def after(self, batch: Batch, outcomes: Outcomes) -> Outcomes:
        """Report the streams' profiles and the running gradients (eq. 7)."""
        devices: list[StreamDevice] = batch.memo.pop(self)
        if self.estimates:
            found = look_together(batch, [device.gradient() for device in devices])
            for row, estimate in zip(batch.rows, found, strict=True):
                if estimate.ndim:
                    row.reply(ESTIMATE, to_record({"estimate": estimate.astype(np.float32)}))
        for device in devices:
            device.report()
            device.save()
        return outcomes


def look_together(batch: Batch, steps: Sequence[Generator[Look, Looked, Found]]) -> list[Found]:
    """Let devices do what they do, and look at samples for all of them at once.

    Returns what each of them returns.
    """
    found: dict[int, Found] = {}
    told: dict[int, Looked | None] = dict.fromkeys(range(len(steps)))
    while told:
        asked: dict[int, Look] = {}
        for number, looked in told.items():
            try:
                asked[number] = steps[number].send(looked)  # type: ignore[arg-type]
            except StopIteration as done:
                found[number] = done.value
        told = dict(zip(asked, looks(batch, list(asked.values())), strict=True))
    return [found[number] for number in range(len(steps))]


def looks(batch: Batch, asked: Sequence[Look]) -> list[Looked]:
    """Look at samples as the run does."""
    if not asked:
        return []
    trainer = batch.side.trainer
    data, models, directions = zip(*asked, strict=True)
    return looked_at_all(trainer.model, batch.config, trainer.problem, models, data, directions)
