"""Clients send the k largest changes; the strategies inside get dense arrays."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from ...core.config import RunConfig
from ...core.log.events import SparseUplinkUsed
from ...core.methods.catalogue import methods
from ...core.methods.top_k import TopKMethod
from ...core.wire import int8, sparse
from ...core.wire.arrays import from_record, record_bytes, value_bytes
from ...core.wire.keys import ARRAYS, DENSITY, SPARSE, VALUES
from ...core.wire.replies import Replies
from ...core.wire.schemas import BadReply, SparseTold
from ..federation.ledger import Assignment
from .base import Layer, Outcome

_log = logging.getLogger("forager")

_ROUNDS, _STEEP = 5, 1.5  # first rounds that tell; mean of their steepness that suits top-k

Floats = NDArray[Any]
Decode = Callable[[Sequence[bytes], Sequence[int]], Floats]  # given the sizes of arrays


class SparseUplink(Layer):
    """Request top-k updates and decode them one by one, outside all layers that read replies."""

    remembers = ("_steepness",)

    def __init__(self, inner: Strategy, *, density: float = 0.1, values: str = "float32") -> None:
        super().__init__(inner)
        self.density = density
        self.values = values
        self.asked: dict[str, Any] = {DENSITY: density, VALUES: values}  # what messages say
        self._sparse = self._dense = 0  # bytes of this round
        self._whole = False  # whether the log says that models are sent whole
        self._sample = b""  # an update of this round
        self._steepness: list[float] = []  # of one update in each of the first rounds

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "SparseUplink":
        """Return the layer that a config describes."""
        method = methods("uplink")[config.uplink]
        assert isinstance(method, TopKMethod)
        return cls(inner, density=method.density_in(config), values=method.values)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Set how much clients send, unless whole models are smaller."""
        sizes = [a.size for a in from_record(arrays).values() if a.dtype.kind == "f"]
        told = sum(map(value_bytes, self.asked.values()))
        if self.most_bytes(sizes) + told < record_bytes(arrays):
            config.update(self.asked)
        elif not self._whole:
            self._whole = True
            _log.info("clients send whole models: the model is too small for a shorter uplink")
        return super().configure_train(server_round, arrays, config, grid)

    def most_bytes(self, sizes: Sequence[int]) -> int:
        """Return what an update of arrays of these sizes takes at most."""
        size = sum(sizes)
        return sparse.most_bytes(size, sparse.num_kept(self.density, size), self.values)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Outcome:
        """Decode, then aggregate; note what the same updates would have taken as whole models."""
        self._sparse, self._dense, self._sample = 0, 0, b""
        try:
            return super().aggregate_train(server_round, replies)
        finally:
            self.federation.note(
                SparseUplinkUsed(
                    round=server_round,
                    bytes_sparse=self._sparse,
                    bytes_dense=self._dense,
                    advice=self._advice(),
                )
            )

    def _advice(self) -> str:
        """Return advice if the changes that are sent are hardly larger than the others."""
        if not self._sample or len(self._steepness) == _ROUNDS:
            return ""
        self._steepness.append(sparse.steepness(self._sample))
        times = sum(self._steepness) / _ROUNDS
        if len(self._steepness) < _ROUNDS or times >= _STEEP:
            return ""
        told = (
            f"the sparse uplink may slow training: the changes sent are {times:.1f} times the "
            "smallest of them, so those left out are hardly smaller; uplink='int8' (a byte per "
            "entry) and 'dense' leave out none"
        )
        if not self.federation.discreet:
            _log.warning(told)
        return told

    def take(self, server_round: int, replies: Replies) -> Replies:
        """Put dense models in place of sparse updates."""
        if replies.has(SPARSE):
            self.federation.roster.meet(replies)
            replies = self._decoded(server_round, replies)
        return replies

    def hear(self, server_round: int, replies: Replies) -> None:
        """Decode late replies by the models that they were made from."""
        if replies.has(SPARSE):
            replies = self._decoded(server_round, replies, "late: ")
        super().hear(server_round, replies)

    def _decoded(self, server_round: int, replies: Replies, prefix: str = "") -> Replies:
        assigned = self.federation.ledger.of(replies)
        models: dict[int, _FlatModel] = {}  # most updates are of the same
        sent: dict[int, _FlatModel] = {}
        payloads: dict[int, bytes] = {}
        wrong: dict[int, str] = {}
        for row, record in enumerate(replies.take(SPARSE)):
            try:
                told = record if type(record) is ConfigRecord else None
                payloads[row] = SparseTold.read(told, "malformed update").payload
                sent[row] = self._model(assigned[row], models)
            except ValueError as error:
                wrong[row] = str(error)
        rows, malformed = _plus(sent, payloads, self.decode)
        wrong |= malformed
        late = {row: f"{prefix}{reason}" for row, reason in wrong.items()}
        sound = self.federation.sound(server_round, replies, late)
        kept = [sent[row] for row in sorted(sent.keys() - wrong.keys())]
        self._sparse += sum(len(payloads[row]) for row in payloads.keys() - wrong.keys())
        self._dense += sum(model.bytes for model in kept)
        if kept:
            self._sample = self._sample or payloads[min(payloads.keys() - wrong.keys())]
            sound.put(ARRAYS, kept[0].arrays_of(rows, kept))
        return sound

    @staticmethod
    def decode(payloads: Sequence[bytes], sizes: Sequence[int]) -> Floats:
        """Return the updates that messages hold, one row each."""
        return sparse.decode_rows(payloads, sum(sizes))

    @staticmethod
    def _model(assignment: Assignment | None, models: dict[int, "_FlatModel"]) -> "_FlatModel":
        if assignment is None or assignment.model is None:
            raise BadReply("nobody asked for it")
        record = assignment.model
        if id(record) not in models:
            models[id(record)] = _FlatModel(record)
        return models[id(record)]


class Int8Uplink(SparseUplink):
    """Decode updates of one byte per entry."""

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "Int8Uplink":
        """Return the layer that a config describes."""
        layer = cls(inner)
        layer.asked = {VALUES: "int8"}
        return layer

    def most_bytes(self, sizes: Sequence[int]) -> int:
        """Return what an update of arrays of these sizes takes."""
        return int8.num_bytes(sizes)

    def _advice(self) -> str:
        return ""  # nothing is left out

    @staticmethod
    def decode(payloads: Sequence[bytes], sizes: Sequence[int]) -> Floats:
        """Return the updates that messages hold, one row each."""
        return np.stack([int8.decode(data, sizes) for data in payloads])


def _plus(
    sent: "Mapping[int, _FlatModel]", payloads: Mapping[int, bytes], decode: Decode
) -> tuple[Floats, dict[int, str]]:
    """Return models plus updates, one row each, and the updates that are malformed."""
    wrong: dict[int, str] = {}
    if not sent:
        return np.empty((0, 0)), wrong
    like = next(iter(sent.values()))
    try:
        changes = decode([payloads[row] for row in sent], like.sizes)
        return np.stack([model.flat for model in sent.values()]) + changes, wrong
    except sparse.MalformedUpdate:  # somebody's: whose, the messages say one by one
        rows = []
        for row, model in sent.items():
            try:
                rows.append(model.flat + decode([payloads[row]], like.sizes)[0])
            except sparse.MalformedUpdate as error:
                wrong[row] = f"malformed update: {error}"
        return np.array(rows), wrong


class _FlatModel:
    """A model that clients were sent, as one vector of its float entries in their order."""

    def __init__(self, record: ArrayRecord) -> None:
        self.arrays = from_record(record)
        self.floats = [name for name, a in self.arrays.items() if a.dtype.kind == "f"]
        self.flat: Floats = np.concatenate([self.arrays[name].ravel() for name in self.floats])
        self.sizes = [self.arrays[name].size for name in self.floats]
        self.bytes = record_bytes(record)

    def arrays_of(self, rows: Floats, sent: "Sequence[_FlatModel]") -> dict[str, NDArray[Any]]:
        """Return vectors as stacked arrays; integer buffers are those that were sent."""
        stacks, start = {}, 0
        for name, array in self.arrays.items():
            if name in self.floats:
                part = rows[:, start : start + array.size].reshape(len(rows), *array.shape)
                stacks[name] = part.astype(array.dtype, copy=False)
                start += array.size
            else:
                stacks[name] = np.stack([model.arrays[name] for model in sent])
        return stacks
