"""Clients send the k largest changes; the strategies inside get dense arrays."""

from collections.abc import Iterable, Iterator

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from ..core.wire.arrays import to_record, view
from ..core.wire.keys import ARRAYS, DENSITY, PAYLOAD, SPARSE, VALUES
from ..core.wire.records import record_at, sent_arrays
from ..core.wire.sizes import record_bytes
from ..core.wire.sparse import MalformedUpdate, decode_pairs
from .layer import Layer
from .quarantine import set_aside
from .roster import Roster


class SparseUplink(Layer):
    """Ask for top-k updates and decode them to the model they were made from, plus the change.

    It stands outside all layers that look at replies, so that any aggregator, robust or adaptive,
    works on what it decodes. Replies are decoded one by one as they are read, so that only one need
    be dense at a time. One that cannot be decoded is set aside as
    :class:`~forager.strategies.quarantine.Quarantine` does it.

    Parameters
    ----------
    inner : Strategy
        Gets dense replies.
    roster : Roster
        Stable names of the clients.
    density : float (default: 0.1)
        Share of the entries that a client sends.
    values : str (default: "float32")
        Type of the sent values, or "float16".
    """

    def __init__(
        self, inner: Strategy, roster: Roster, *, density: float = 0.1, values: str = "float32"
    ) -> None:
        super().__init__(inner)
        self.roster = roster
        self.density = density
        self.values = values
        self._sent: dict[int, ArrayRecord] = {}
        self._sparse_bytes = self._dense_bytes = 0  # of the updates that a round has decoded

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Tell clients how much to send, and remember what the change will be relative to."""
        config[DENSITY] = self.density
        config[VALUES] = self.values
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self._sent = {m.metadata.dst_node_id: sent_arrays(m, ARRAYS) for m in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decode, then aggregate; note what the same updates would have taken as whole models."""
        self._sparse_bytes = self._dense_bytes = 0
        try:
            return super().aggregate_train(server_round, self._dense(server_round, replies))
        finally:
            sizes = {"bytes-sparse": self._sparse_bytes, "bytes-dense": self._dense_bytes}
            self.journal("uplink", round=server_round, **sizes)

    def _dense(self, server_round: int, replies: Iterable[Message]) -> Iterator[Message]:
        for reply in replies:
            try:
                if not reply.has_error() and SPARSE in reply.content:
                    self._decode(reply)
            except MalformedUpdate as error:
                self.roster.learn(reply)
                node = reply.metadata.src_node_id
                set_aside(self, self.roster, server_round, node, f"malformed update: {error}")
            else:
                yield reply

    def _decode(self, reply: Message) -> None:
        sent = self._sent.get(reply.metadata.src_node_id)
        record = record_at(reply.content, SPARSE, ConfigRecord)
        payload = record.get(PAYLOAD) if record is not None else None
        if sent is None or not isinstance(payload, bytes):
            raise MalformedUpdate("no sparse update that was asked for")
        arrays = add_update(sent, payload)
        self._sparse_bytes += len(payload)
        self._dense_bytes += record_bytes(arrays)
        del reply.content[SPARSE]
        reply.content[ARRAYS] = arrays


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
