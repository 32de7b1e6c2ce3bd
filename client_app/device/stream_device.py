"""A device with a stream: between contacts samples arrive; a rule says which of them to keep.

At every contact the device first looks at what arrived, with the model, global gradient and plan
that it had then. Then it takes in what the message brings, values its stored samples again, trains
on them if it is its turn, and reports. Samples, rule and position in the stream belong to the
device and outlive a run; model, plan and gradients belong to the run.
"""

import json
import zlib
from collections.abc import Generator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from ...core.learning.job import batch_seed
from ...core.learning.sample_values import Looked
from ...core.methods.base import load
from ...core.methods.catalogue import methods
from ...core.methods.ode import OdeSettings, ode_method
from ...core.tasks import Samples, Split
from ...core.tasks.streams.arrivals import Arrivals
from ...core.tasks.streams.sources import FolderStream, OwnStream, PartitionStream
from ...core.wire.keys import ESTIMATE, PLAN
from ...core.wire.records import filled
from ...selectors.stream_selectors.base import Offered, StreamSelector
from ...selectors.stream_selectors.ode import OdeSelector, RunningGradient
from ..batch import Arrays, ClientRow
from .node_stream import open_stream, room_of
from .sample_store import DiskStore, SampleStore
from .state import ContextStore, state_path

_GUIDANCE = "stream"  # section of the client's state
_HEAD_START = 50  # samples that arrived before the run began, where data are replayed
_BOUNDLESS = 2**62


class Look(NamedTuple):
    """Samples that a device looks at, with the model and in the direction that it has."""

    data: Samples
    model: Arrays
    direction: NDArray[np.float32] | None


Looks = Generator[Look, Looked, None]  # what a device does until it has to look at samples


class StreamDevice:
    """The stream, the store and the rule of one client, as it was left at the last contact.

    It yields what it has to look at: many devices look together (``client_app.hooks.streams``).
    """

    def __init__(self, row: ClientRow) -> None:
        self.row = row
        self.config = row.config
        self.stream = open_stream(row)
        self.packing = row.side.packing  # what is stored of a sample
        self.room = room_of(row)
        self.store = row.open_store(self._open_store, self._save)
        self.rule = self._open_rule()
        self.arrived = self.stored_anew = 0
        self.unseen = 0  # arrived samples that no model has looked at
        # Whether the rule is new to the device: it knows neither the stream nor what is stored.
        self.first_contact = self.store.memo.get("made-by") != self._made_by
        if not self.first_contact:
            self._restore(self.store.memo)
        self.running = RunningGradient()
        self.class_weights: list[float] = []
        self.model: Arrays = {}
        self.estimate: NDArray[np.float32] | None = None
        guidance: dict[str, Any] = row.state.get(_GUIDANCE, {})
        # A run may be resumed with data or settings for which the old guidance is useless.
        usable = guidance.get("made-for") == [self._made_for, self.config[OdeSettings].layers]
        self.new_to_run = not usable or (self.looks and not guidance["model"])
        if not self.new_to_run:
            self.running.load_state_dict(guidance["running"])
            self.class_weights = list(guidance["class-weights"])
            self.model, self.estimate = guidance["model"], guidance["estimate"]
        elif isinstance(self.rule, OdeSelector):
            self.rule.assign(None)  # the plan was another run's

    @cached_property
    def _made_for(self) -> str:
        """What the stored samples are of use for, as JSON."""
        stream, classes = self.stream, self.row.side.num_classes
        what: list[object] = [self.config.task, self.packing.shape, classes]
        if isinstance(stream, PartitionStream):  # a sample's key is its place among these
            what += [len(stream.y), zlib.crc32(stream.y.tobytes())]
        return json.dumps(what)

    @property
    def _made_by(self) -> list[str]:
        """What the memo depends on: the rule, and where samples come from."""
        node = self.row.context.node_config
        source = node.get("stream-path") or node.get("stream-source") or ""
        return [self.config.data_selector, str(source)]

    @cached_property
    def looks(self) -> bool:
        """Whether the rule must know more of a sample than its label."""
        if self.rule.needs == "value":
            return self.config[OdeSettings].estimator != "none"
        return self.rule.needs != "nothing"

    @property
    def sees(self) -> bool:
        """Whether it has the model for that."""
        return self.looks and bool(self.model)

    def _open_rule(self) -> StreamSelector:
        places = self.store.places(np.empty(self.packing.shape, dtype=np.float32))
        seed = batch_seed(self.config.seed, self.row.key, 1) % 2**32
        core = methods("data-selector")[self.config.data_selector].core
        rule: StreamSelector = load(core)(places, seed)
        return rule

    def _open_store(self) -> SampleStore:
        unlimited = self.config.data_selector == "unlimited"
        capacity = _BOUNDLESS if unlimited else self.room.samples
        size = 0 if unlimited else self.room.size
        files = state_path(self.row.context)
        if files is None:
            return ContextStore(self.row.context, self._made_for, capacity, size)
        path = files.with_suffix(".samples")
        done = self.stream.release if isinstance(self.stream, FolderStream) else None
        return DiskStore(path, self._made_for, capacity, size, done)

    def _restore(self, memo: dict[str, Any]) -> None:
        self.stream.load_state_dict(memo["stream"])
        self.rule.load_state_dict(memo["rule"])
        self.arrived, self.stored_anew = int(memo["arrived"]), int(memo["stored-anew"])
        self.unseen = int(memo.get("unseen", 0))
        # The capacity may have shrunk, or some samples may be lost to a damaged disk.
        if not np.array_equal(self.rule.kept, self.store.keys):
            self.store.retain(self.rule.kept)
            self.rule.discard(np.setdiff1d(self.rule.kept, self.store.keys))

    def meet(self) -> Looks:
        """Catch up with the stream, and take in what a message to train brings."""
        if self.new_to_run:
            yield from self._take_in()
            yield from self._catch_up()
        yield from self.live()
        yield from self._take_in()

    def live(self) -> Looks:
        """Look at what arrived up to now, and keep or drop it."""
        if self.first_contact:
            yield from self._adopt()
            if isinstance(self.stream, PartitionStream):
                yield from self._begin_before(self.stream)
            self.first_contact = False
        yield from self._decide_on(self.stream.arrivals(self.row.round))

    def pass_time(self) -> Looks:
        """Catch up with the stream without being sent a model, if that can be."""
        if self.model or not self.looks:
            yield from self.live()
        elif not (yield from self._foresee()):
            return
        self.row.close()

    def _foresee(self) -> Generator[Look, Looked, bool]:
        """Learn how fast labels come without a model; return whether there is more to save.

        Files of a folder stay for later; the user's own source may give a sample only once.
        """
        known = self.stream.label_velocity(self.row.side.num_classes).any()
        if isinstance(self.stream, FolderStream):
            self.stream.survey(self.row.round)
        elif isinstance(self.stream, OwnStream) and self.rule.needs == "value" and not known:
            yield from self.live()
            return True
        return False

    def _catch_up(self) -> Looks:
        """Put what was kept at random, a fair sample, into the running gradient (eq. 7)."""
        if self.unseen and self.sees and len(self.store) and self.rule.needs == "value":
            gradient = (yield self._look(*self.store.read())).mean_gradient
            if np.isfinite(gradient).all():
                self.running.update(gradient, self.unseen)
        self.unseen = 0

    def _adopt(self) -> Looks:
        """Let the rule decide on what another one has stored."""
        if len(self.store):
            keys, (x, y) = self.store.keys, self.store.read()
            known = Offered(keys, y)
            if self.sees:
                known = self._valued(keys, y, (yield self._look(x, y)))
            self.rule.offer(known)
        self.store.retain(self.rule.kept)

    def _begin_before(self, stream: PartitionStream) -> Looks:
        """Let a stream that is played from data begin some samples ago."""
        if stream.velocity > 0:
            rounds = int(np.ceil(_HEAD_START / stream.velocity))
            yield from self._decide_on(stream.arrivals(rounds))
            stream.arrivals(0)  # from here on it is the run that counts rounds

    def _decide_on(self, arrived: Arrivals) -> Looks:
        self.arrived += len(arrived.y)
        if not len(arrived.y):
            return
        batch = Offered(arrived.keys, arrived.y)
        if self.looks and not self.sees:
            self.unseen += len(arrived.y)
        if self.sees:
            looked = yield self._look(arrived.x, arrived.y)
            batch = self._valued(arrived.keys, arrived.y, looked)
            if self.rule.needs == "value" and np.isfinite(looked.mean_gradient).all():
                self.running.update(looked.mean_gradient, len(arrived.y))
        decision = self.rule.offer(batch)
        keys, x, y = (column[decision.kept] for column in arrived)
        if self.store.swap(decision.evicted, keys, x, y):
            self.stored_anew += len(keys)
        else:  # there is no room after all: the rule forgets them, the store what they replaced
            self.rule.discard(keys)
            self.store.retain(self.rule.kept)

    def _look(self, x: NDArray[Any], y: NDArray[Any]) -> Look:
        """Return a look at samples with the model and the estimate that the device has."""
        direction = self.estimate if self.rule.needs == "value" else None
        return Look(self.packing.unpack(x, y), self.model, direction)

    def _valued(self, keys: NDArray[np.int64], y: NDArray[Any], looked: Looked) -> Offered:
        """Return samples with what the rule must know of them."""
        return Offered(
            keys, y, losses=looked.losses, gradient_norms=looked.norms, values=looked.values
        )

    def _take_in(self) -> Looks:
        """Follow the plan, the estimate and the model that came with the message."""
        told = self.row.sent(PLAN)
        if told is not None and isinstance(self.rule, OdeSelector):
            quota = told.get("quota")  # a client whose labels are not known yet has none
            gone = self.rule.assign(None if quota is None else _fitting(quota, self.rule.capacity))
            if len(gone) and not self.first_contact:  # then it has not seen yet what is stored
                self.store.retain(self.rule.kept)
            self.class_weights = list(told["class-weights"])
        estimate = self.row.arrays(ESTIMATE)
        if estimate is not None:
            self.estimate = estimate["estimate"]
        self.model = self.row.model
        # Value what is stored by the new model and estimate
        unvalued = self.rule.needs == "value" and self.estimate is None
        if self.looks and not unvalued and len(self.rule):
            keys = self.rule.kept
            x, y = self.store.read(keys)
            self.rule.revalue(self._valued(keys, y, (yield self._look(x, y))))

    def gradient(self) -> Generator[Look, Looked, NDArray[Any]]:
        """Return the mean gradient of what arrived (eq. 7), or of what is stored; 0 if of none."""
        if self.config[OdeSettings].estimator == "stored":
            return (yield self._look(*self.store.read())).mean_gradient
        return self.running.report()

    def samples(self) -> tuple[Split, NDArray[np.float32] | None]:
        """Return what is stored, and the weight of each sample where the plan has weights."""
        x, y = self.store.read()
        weights = None
        if self.class_weights:
            weights = np.asarray(self.class_weights, dtype=np.float32)[y]
            if not weights.any():  # only labels that the plan does not know yet
                weights = None
        return self.packing.unpack(x, y), weights

    def counts_for(self, weights: NDArray[np.float32] | None) -> float:
        """Return the client's weight: that of all its samples (eq. 12), or how fast they come."""
        ode = ode_method(self.config)
        if self.class_weights and (ode is None or ode.client_weights == "stored"):
            return float(len(self.store) if weights is None else weights.sum())
        speed = float(self.stream.label_velocity(self.row.side.num_classes).sum())
        return speed or float(len(self.store))

    def report(self) -> None:
        """Tell the server how fast labels come, and how much room there is."""
        classes = self.row.side.num_classes
        told = {
            "capacity": min(self.rule.capacity, self.room.samples),
            "velocity": self.stream.label_velocity(classes).tolist(),
            "stored": np.bincount(self.rule.labels, minlength=classes).tolist(),
            "arrived": self.arrived,
            "kept": self.stored_anew,
        }
        self.row.reply(PLAN, filled(ConfigRecord, told))

    def _save(self) -> None:
        self.store.memo = {
            "made-by": self._made_by,
            "stream": self.stream.state_dict(),
            "rule": self.rule.state_dict(),
            "arrived": self.arrived,
            "stored-anew": self.stored_anew,
            "unseen": self.unseen,
        }
        self.row.state[_GUIDANCE] = {
            "made-for": [self._made_for, self.config[OdeSettings].layers],
            "running": self.running.state_dict(),
            "class-weights": self.class_weights,
            "model": self.model if self.looks else {},
            "estimate": self.estimate,
        }


def _fitting(quota: Any, capacity: int) -> list[int]:
    """Return a plan that fits the capacity, which may have shrunk since the server made it."""
    places = [int(count) for count in quota]
    while sum(places) > capacity:
        places[places.index(max(places))] -= 1
    return places
