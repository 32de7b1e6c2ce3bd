"""Clients send the k largest changes; the strategies inside get dense arrays."""

from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ...core.config import RunConfig
from ...core.log.events import SparseUplinkUsed
from ...core.methods.top_k import TopK
from ...core.wire.arrays import to_record, view
from ...core.wire.keys import ARRAYS, DENSITY, PAYLOAD, SPARSE, VALUES
from ...core.wire.records import record_at
from ...core.wire.sizes import record_bytes
from ...core.wire.sparse import MalformedUpdate, decode_pairs
from ..federation.federation import BadReply
from ..federation.late_reply import LateReply
from .base import Layer


class SparseUplink(Layer):
    """Ask for top-k updates and decode them to the model they were made from, plus the change.

    It stands outside all layers that look at replies, so that any aggregator, robust or adaptive,
    works on what it decodes. Replies are decoded one by one as they are read, so that only one need
    be dense at a time. One that cannot be decoded is set aside as
    :class:`~forager.strategies.layers.quarantine.Quarantine` does it.

    Parameters
    ----------
    inner : Strategy
        Gets dense replies.
    density : float (default: 0.1)
        Share of the entries that a client sends.
    values : str (default: "float32")
        Type of the sent values, or "float16".
    """

    def __init__(self, inner: Strategy, *, density: float = 0.1, values: str = "float32") -> None:
        super().__init__(inner)
        self.density = density
        self.values = values

    @classmethod
    def of_run(cls, inner: Strategy, config: RunConfig) -> "SparseUplink":
        """Return the layer that a config describes."""
        return cls(inner, density=config[TopK].density, values=config[TopK].values)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Set how much clients send."""
        config[DENSITY] = self.density
        config[VALUES] = self.values
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode, then aggregate; note what the same updates would have taken as whole models."""
        sparse = dense = 0

        def decode(reply: Message) -> None:
            nonlocal sparse, dense
            if SPARSE in reply.content:
                self.federation.roster.learn(reply)
                sent = self.federation.sent_model(reply.metadata.src_node_id)
                payload = _decode(reply, sent)
                sparse += len(payload)
                dense += record_bytes(sent)

        try:
            sound = self.federation.sound(server_round, replies, decode)
            return super().aggregate_train(server_round, sound)
        finally:
            self.federation.note(
                SparseUplinkUsed(round=server_round, bytes_sparse=sparse, bytes_dense=dense)
            )

    def hear_late(self, late: LateReply) -> None:
        """Decode a late reply by the model that it was made from."""
        if SPARSE in late.reply.content:
            _decode(late.reply, late.model)
        super().hear_late(late)


def _decode(reply: Message, sent: ArrayRecord) -> bytes:
    """Put a dense model in place of a sparse update of what was sent; return the update."""
    record = record_at(reply.content, SPARSE, ConfigRecord)
    payload = record.get(PAYLOAD) if record is not None else None
    try:
        if not isinstance(payload, bytes):
            raise MalformedUpdate("no sparse update that was asked for")
        arrays = add_update(sent, payload)
    except MalformedUpdate as error:
        raise BadReply(f"malformed update: {error}") from error
    del reply.content[SPARSE]
    reply.content[ARRAYS] = arrays
    return payload


def float_names(record: ArrayRecord) -> list[str]:
    """Return the names of the arrays that an update is made of: integer buffers are not."""
    return [name for name, array in record.items() if np.dtype(array.dtype).kind == "f"]


def add_update(reference: ArrayRecord, payload: bytes) -> ArrayRecord:
    """Return the reference plus a sparse update of its float entries, flattened in order."""
    names = float_names(reference)
    arrays = {name: view(array) for name, array in reference.items()}
    flat = np.concatenate([arrays[name].ravel() for name in names])
    size, indices, values = decode_pairs(payload)
    if size != flat.size:
        raise MalformedUpdate(f"an update of {size} entries for a model of {flat.size}")
    flat[indices] += values
    start = 0
    for name in names:
        shape, dtype = arrays[name].shape, arrays[name].dtype
        stop = start + arrays[name].size
        arrays[name] = flat[start:stop].reshape(shape).astype(dtype, copy=False)
        start = stop
    return to_record(arrays)
