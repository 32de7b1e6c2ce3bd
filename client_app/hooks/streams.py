"""Training on the stored samples of a stream."""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.entropy import protective
from ...core.learning.job import Outcomes, batch_seed
from ...core.learning.sample_values import Looked, looked_at_all
from ...core.methods.ode import OdeSettings, ode_method
from ...core.tasks.errors import SayableError
from ...core.wire.arrays import to_record
from ...core.wire.keys import ESTIMATE
from ..batch import ClientBatch, ClientRow
from ..device.stream_device import Look, StreamDevice
from .base import ClientHook

Found = TypeVar("Found")


class StreamedData(ClientHook):
    """Keep or drop what arrived, then train on the store with the plan's weights (eq. 12)."""

    chooses_data = holds_data = True

    def __init__(self, config: RunConfig) -> None:
        ode = config[OdeSettings]
        self.noise, self.clip = ode.noise, ode.noise_clip
        reported = ode.estimator not in ("exact", "none")
        self.estimates = ode_method(config) is not None and reported
        self.private = config.privacy == "local-dp"

    def before(self, batch: ClientBatch) -> None:
        """Catch up with the streams, take in what the messages bring, and offer the stores."""
        devices = batch.memo[self] = [StreamDevice(row) for row in batch.rows]
        look_together(batch, [device.meet() for device in devices])
        for row, device in zip(batch.rows, devices, strict=True):
            if not len(device.store):
                if len(batch) == 1:
                    row.close()  # it cannot train, but what it saw is not forgotten
                raise SayableError("nothing that arrived has been kept yet")
        pairs = [device.samples() for device in devices]
        batch.data = [samples for samples, _ in pairs]
        batch.weights = [weights for _, weights in pairs]
        if not self.private:  # else it counts for the samples that it trains on
            batch.counts_for = [
                device.counts_for(own) for device, (_, own) in zip(devices, pairs, strict=True)
            ]

    def after(self, batch: ClientBatch, outcomes: Outcomes) -> Outcomes:
        """Report profiles and running gradients (eq. 7); with local noise only the gradients."""
        devices: list[StreamDevice] = batch.memo.pop(self)
        if self.estimates:
            found = look_together(batch, [device.gradient() for device in devices])
            for row, estimate in zip(batch.rows, found, strict=True):
                if estimate.ndim:
                    sent = self._noisy(row, estimate).astype(np.float32)
                    row.reply(ESTIMATE, to_record({"estimate": sent}))
        for device in devices:
            if not self.private:
                device.report()
        return outcomes

    def _noisy(self, row: ClientRow, estimate: NDArray[Any]) -> NDArray[Any]:
        """Return an estimate, clipped and with noise that hides what single samples add to it."""
        if not self.noise:
            return estimate
        length = float(np.linalg.norm(estimate))
        clipped = estimate * min(1.0, self.clip / length) if length else estimate
        own = batch_seed(row.config.seed, row.key, row.round) % 2**63
        rng = protective(row.simulated, row.config.seed, own, 7)
        noise = rng.normal(scale=self.noise, size=estimate.size)
        return np.asarray(clipped + noise)


def look_together(
    batch: ClientBatch, steps: Sequence[Generator[Look, Looked, Found]]
) -> list[Found]:
    """Let devices do what they do, look at all their samples at once; return their results."""
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


def looks(batch: ClientBatch, asked: Sequence[Look]) -> list[Looked]:
    """Look at samples as the run does."""
    if not asked:
        return []
    trainer = batch.side.trainer
    data, models, directions = zip(*asked, strict=True)
    return looked_at_all(trainer.model, batch.config, trainer.problem, models, data, directions)
