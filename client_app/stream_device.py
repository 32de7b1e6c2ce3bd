"""A device with a stream: between contacts samples arrive; a rule says which of them to keep.

At every contact the device first looks at what arrived since the last one, with the model, the
global gradient and the plan that it had then (it was on its own), and keeps or drops. Then it takes
in what the message brings, values its stored samples anew, trains on them if it is its turn, and
reports. What it stores lies in a file of its own where the node config names ``state-dir``.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord
from numpy.typing import NDArray

from ..core.learning.batches import batch_seed
from ..core.learning.sample_values import Looked, valuation
from ..core.learning.trainer import load_arrays
from ..core.methods.base import load
from ..core.methods.catalogue import methods
from ..core.methods.ode import Ode
from ..core.methods.stream import Stream as StreamSettings
from ..core.tasks import Split
from ..core.tasks.streams.arrivals import Arrivals, Stream
from ..core.tasks.streams.sources import FolderStream, OwnStream, PartitionStream
from ..core.wire.arrays import from_record
from ..core.wire.keys import ESTIMATE, PLAN
from ..core.wire.records import entries, record_at
from ..selectors.stream_selectors.base import Batch, StreamSelector
from ..selectors.stream_selectors.ode import RunningGradient
from ..selectors.stream_selectors.ode_selector import OdeSelector
from .request import Arrays, ClientRequest
from .sample_store import DiskStore, SampleStore
from .state import state_path
from .training import trainer_of

_log = logging.getLogger("forager")
_SECTION = "stream"
_BOUNDLESS = 2**62


class StreamDevice:
    """The stream, the store and the rule of one client, as it was left at the last contact."""

    def __init__(self, request: ClientRequest) -> None:
        self.request = request
        self.config = request.config
        self.kept: dict[str, Any] = dict(request.state.get(_SECTION, {}))
        if self.kept.get("made-for") != self._made_for:
            self.kept = {}  # left by another run, of no use to this one
        self.first_contact = not self.kept
        self.stream = self._open_stream()
        self.store = self._open_store()
        self.rule = self._open_rule()
        self.running = RunningGradient()
        self.class_weights: list[float] = []
        self.model: Arrays = {}
        self.estimate: NDArray[np.float32] | None = None
        self.arrived = int(self.kept.get("arrived", 0))
        self.stored_anew = int(self.kept.get("stored-anew", 0))
        if not self.first_contact:
            self._restore()
        # A crash may have come between storing a sample and noting it, or the other way round.
        self.store.retain(self.rule.kept)
        self.rule.discard(np.setdiff1d(self.rule.kept, self.store.keys))

    @property
    def _made_for(self) -> list[str | int]:
        """What the rule, the model and the gradients that are kept depend on."""
        config = self.config
        what = [config.task, config.data_selector, config.model]
        return [*what, config.net.hidden, config[Ode].layers]

    @property
    def looks(self) -> bool:
        """Whether the rule must know more of a sample than its label."""
        if self.rule.needs == "value":
            return self.config[Ode].estimator != "none"
        return self.rule.needs != "nothing"

    def _open_stream(self) -> Stream:
        """Return a folder that fills, the user's own source, or the client's data played anew."""
        node, task = self.request.context.node_config, self.request.task
        if "data-path" in node:  # a device without the server's data knows a sample's shape by it
            task.device_data(str(node["data-path"]))
        if "stream-path" in node:
            folder = Path(str(node["stream-path"]))
            return FolderStream(folder, task.input_shape, task.num_classes)
        if "stream-source" in node:
            source = str(node["stream-source"])
            return OwnStream(source, task.input_shape, task.num_classes)
        settings, data = self.config[StreamSettings], self.request.data
        speed = settings.velocity * (len(data) if settings.velocity < 1 else 1)
        return PartitionStream(
            data.x.numpy(),
            data.y.numpy(),
            speed,
            seed=self.config.seed,
            partition_id=batch_seed(self.config.seed, self.request.key, 0) % 2**31,
            drift=settings.drift,
            burst=settings.burst,
        )

    def _open_rule(self) -> StreamSelector:
        places = self.store.places(np.empty(self.request.task.input_shape, dtype=np.float32))
        seed = batch_seed(self.config.seed, self.request.key, 1) % 2**32
        core = methods("data-selector")[self.config.data_selector].core
        rule: StreamSelector = load(core)(places, seed)
        return rule

    def _open_store(self) -> SampleStore:
        settings = self.config[StreamSettings]
        unlimited = self.config.data_selector == "unlimited"
        capacity = _BOUNDLESS if unlimited else settings.capacity
        size = 0 if unlimited else settings.capacity_bytes
        path = state_path(self.request.context)
        if path is None:
            return SampleStore(capacity, size)
        path.parent.mkdir(parents=True, exist_ok=True)
        return DiskStore(path.with_suffix(".samples"), self.config.task, capacity, size)

    def _restore(self) -> None:
        self.stream.load_state_dict(self.kept["stream"])
        self.rule.load_state_dict(self.kept["rule"])
        self.running.load_state_dict(self.kept["running"])
        self.class_weights = list(self.kept["class-weights"])
        self.model = dict(self.kept["model"])
        self.estimate = self.kept["estimate"]
        if not isinstance(self.store, DiskStore):
            self.store.load_state_dict(self.kept["samples"])

    def live_until(self, server_round: int) -> None:
        """Look at what arrived up to a round, and keep or drop it."""
        if self.first_contact and isinstance(self.stream, PartitionStream):
            self._begin_before(self.stream)
        self._decide_on(self.stream.arrivals(server_round))

    def _begin_before(self, stream: PartitionStream) -> None:
        """Let a stream that is played from data begin some samples ago."""
        if stream.velocity > 0:
            rounds = int(np.ceil(self.config[StreamSettings].head_start / stream.velocity))
            self._decide_on(stream.arrivals(rounds))
            stream.arrivals(0)  # from here on it is the run that counts rounds

    def _decide_on(self, arrived: Arrivals) -> None:
        self.arrived += len(arrived.y)
        if not len(arrived.y):
            return
        batch = Batch(arrived.keys, arrived.y)
        if self.looks:
            looked = self._look(arrived.x, arrived.y)
            batch = self._valued(arrived.keys, arrived.y, looked)
            if self.rule.needs == "value" and np.isfinite(looked.mean_gradient).all():
                self.running.update(looked.mean_gradient, len(arrived.y))
        before = self.rule.state_dict()
        decision = self.rule.offer(batch)
        keys, x, y = (column[decision.kept] for column in arrived)
        if self.store.swap(decision.evicted, keys, x, y):
            self.stored_anew += len(keys)
        else:  # a full disk: what is stored stays
            self.rule.load_state_dict(before)

    def _look(self, x: NDArray[Any], y: NDArray[Any]) -> Looked:
        """Look at samples with the model and the estimate that the device has."""
        model = trainer_of(self.config).model
        load_arrays(model, self.model)
        direction = self.estimate if self.rule.needs == "value" else None
        return valuation(model, self.config).look(
            torch.from_numpy(x), torch.from_numpy(y), direction
        )

    def _valued(self, keys: NDArray[np.int64], y: NDArray[Any], looked: Looked) -> Batch:
        """Return samples with what the rule must know of them."""
        values: NDArray[Any] | None = looked.values
        if values is not None and looked.norms is not None and self.config[Ode].normalize:
            values = values / np.maximum(looked.norms, 1e-12)
        return Batch(keys, y, losses=looked.losses, gradient_norms=looked.norms, values=values)

    def take_in(self, model: Arrays | None = None) -> None:
        """Follow the plan, the estimate and the model that came with the message."""
        content = self.request.message.content
        plan = record_at(content, PLAN, ConfigRecord)
        if plan is not None and isinstance(self.rule, OdeSelector):
            told = entries(plan)
            quota = told.get("quota")  # a client whose labels are not known yet has none
            self.rule.assign(None if quota is None else _fitting(quota, self.rule.capacity))
            self.store.retain(self.rule.kept)
            self.class_weights = list(told["class-weights"])
        estimate = record_at(content, ESTIMATE, ArrayRecord)
        if estimate is not None:
            self.estimate = from_record(estimate)["estimate"]
        if model is not None:
            self.model = model
            self._revalue()

    def _revalue(self) -> None:
        """Value what is stored by the new model and estimate."""
        unvalued = self.rule.needs == "value" and self.estimate is None
        if self.looks and not unvalued and len(self.rule):
            keys = self.rule.kept
            x, y = self.store.read(keys)
            self.rule.revalue(self._valued(keys, y, self._look(x, y)))

    def gradient(self) -> NDArray[Any]:
        """Return what the server is told for its estimate; a plain 0 if there is nothing to tell.

        That is the mean gradient of all that arrived (eq. 7), or naively of what is stored.
        """
        if self.config[Ode].estimator == "stored":
            return self._look(*self.store.read()).mean_gradient
        return self.running.report()

    def samples(self) -> tuple[Split, NDArray[np.float32] | None]:
        """Return what is stored, and the weight of each sample where the plan has weights."""
        x, y = self.store.read()
        weights = None
        if self.class_weights:
            weights = np.asarray(self.class_weights, dtype=np.float32)[y]
            if not weights.any():  # only labels that the plan does not know yet
                weights = None
        return Split(torch.from_numpy(x), torch.from_numpy(y)), weights

    def counts_for(self) -> float:
        """Return the client's weight: that of all its samples (eq. 12), else how fast they come."""
        data, weights = self.samples()
        if self.class_weights:
            return float(len(data) if weights is None else weights.sum())
        speed = float(self.stream.label_velocity(self.request.task.num_classes).sum())
        return speed or float(len(data))

    def report(self) -> dict[str, ConfigRecord]:
        """Return what the server is told: how fast labels come, how much room there is."""
        classes = self.request.task.num_classes
        told = {
            "capacity": min(self.rule.capacity, self.config[StreamSettings].capacity),
            "velocity": self.stream.label_velocity(classes).tolist(),
            "stored": np.bincount(self.rule.labels, minlength=classes).tolist(),
            "arrived": self.arrived,
            "kept": self.stored_anew,
        }
        return {PLAN: ConfigRecord(told)}

    def save(self) -> None:
        """Put down everything for the next contact."""
        state = {
            "made-for": self._made_for,
            "stream": self.stream.state_dict(),
            "rule": self.rule.state_dict(),
            "running": self.running.state_dict(),
            "class-weights": self.class_weights,
            "model": self.model if self.looks else {},
            "estimate": self.estimate,
            "arrived": self.arrived,
            "stored-anew": self.stored_anew,
        }
        if not isinstance(self.store, DiskStore):
            state["samples"] = self.store.state_dict()
        self.request.state[_SECTION] = state


def _fitting(quota: Any, capacity: int) -> NDArray[np.int64]:
    """Return a plan that fits the capacity, which may have shrunk since the server made it."""
    places = np.asarray(quota, dtype=np.int64)
    while places.sum() > capacity:
        places[np.argmax(places)] -= 1
    return places
