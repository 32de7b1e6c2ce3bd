"""Training on what a stream left behind, and the light message that only lets time pass."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.learning.job import Job, Outcome
from ...core.learning.model_arrays import load_arrays
from ...core.learning.sample_values import valuation
from ...core.methods.ode import Ode, ode_settings
from ...core.wire.arrays import to_record
from ...core.wire.keys import ARRAYS, ESTIMATE, METRICS, NUM_EXAMPLES
from ...core.wire.records import entries, filled, replies_to
from ..device.stream_device import StreamDevice
from ..handlers.training import trainer_of
from ..identity import client_task, reply_header
from ..request import ClientHook, ClientRequest, client_requests


class StreamedData(ClientHook):
    """Keep or drop what arrived, then train on the store with the plan's weights (eq. 12)."""

    chooses_data = holds_data = True

    def __init__(self, config: RunConfig) -> None:
        self.noise, self.clip = config[Ode].noise, config[Ode].noise_clip
        ode = ode_settings(config)
        self.estimates = ode is not None and ode.estimator not in ("exact", "none")
        self._devices: dict[str, StreamDevice] = {}

    def before(self, request: ClientRequest) -> None:
        """Catch up with the stream, take in what the message brings, and offer the store."""
        device = StreamDevice(request)
        if device.new_to_run:
            device.take_in(request.arrays)
            device.catch_up()
        device.live_until(request.round)
        device.take_in(request.arrays)
        device.save()
        if not len(device.store):
            request.close()  # it cannot train, but what it saw is not forgotten
            raise ValueError(f"client {request.key!r}: nothing that arrived has been kept yet")
        request.chosen, request.weights = device.samples()
        request.counts_for = device.counts_for()
        self._devices[request.key] = device

    def after(self, request: ClientRequest, job: Job, outcome: Outcome) -> Outcome:
        """Report the stream's profile and the running gradient (eq. 7)."""
        device = self._devices.pop(request.key)
        request.reply |= device.report()
        if self.estimates:
            estimate = device.gradient()
            if estimate.ndim:
                sent = self._noisy(request, estimate).astype(np.float32)
                request.reply[ESTIMATE] = to_record({"estimate": sent})
        device.save()
        return outcome

    def _noisy(self, request: ClientRequest, estimate: NDArray[Any]) -> NDArray[Any]:
        """Return an estimate, clipped and with noise that hides what single samples add to it.

        On a device the noise is unpredictable: what is seeded, the server could subtract. In
        simulation it is seeded, so that runs repeat.
        """
        if not self.noise:
            return estimate
        length = float(np.linalg.norm(estimate))
        clipped = estimate * min(1.0, self.clip / length) if length else estimate
        simulated = "partition-id" in request.context.node_config
        seed = [request.config.seed, request.job().seed % 2**63, 7] if simulated else None
        noise = np.random.default_rng(seed).normal(scale=self.noise, size=estimate.size)
        return np.asarray(clipped + noise)


def ingest_clients(messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
    """Let every client look at what arrived, and report how fast its labels come.

    A message that carries a model asks for nothing but the gradient of all the client's data, as
    only an oracle could know it.
    """
    contents = []
    for request in client_requests(messages, contexts, client_task(contexts[0])):
        content = reply_header(request.context)
        if ARRAYS in entries(request.message.content):
            content[ESTIMATE] = to_record({"estimate": _exact_gradient(request)})
        else:
            content |= _live_on(request)
        content[METRICS] = filled(MetricRecord, {NUM_EXAMPLES: 1})
        contents.append(filled(RecordDict, content))
    return replies_to(messages, contents)


def _live_on(request: ClientRequest) -> dict[str, ConfigRecord]:
    """Catch up with the stream, if the client can; return its profile."""
    device = StreamDevice(request)
    if device.model or not device.looks:
        device.live_until(request.round)
        device.save()
        request.close()
    elif device.foresee(request.round):
        request.close()
    else:
        request.abandon()
    return device.report()


def _exact_gradient(request: ClientRequest) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    if "partition-id" not in request.context.node_config:
        raise ValueError("a device does not hold all the data of its stream")
    model = trainer_of(request.config).model
    load_arrays(model, request.arrays)
    data = request.holdings.train
    look = valuation(model, request.config, request.task.problem).look
    return look(data.x, data.y, None).mean_gradient
