"""Handler of ``query.ingest``: a light message that only lets time pass for streams."""

from ...core.tasks.errors import SayableError
from ...core.wire.arrays import to_record
from ...core.wire.keys import ARRAYS, ESTIMATE
from ...core.wire.replies import Replies
from ..batch import ClientBatch
from ..device.stream_device import Look, StreamDevice
from ..hooks.streams import look_together, looks


def ingest_clients(batch: ClientBatch) -> Replies:
    """Let every client look at what arrived, and report how fast its labels come.

    A message that carries a model asks for nothing but the gradient of all the client's data, as
    only an oracle could know it.
    """
    if ARRAYS in batch.requests.content(0):
        _tell_exact_gradients(batch)
    else:
        devices = [StreamDevice(row) for row in batch.rows]
        look_together(batch, [device.pass_time() for device in devices])
        for device in devices:
            device.report()
    return batch.replies()


def _tell_exact_gradients(batch: ClientBatch) -> None:
    if not all(row.simulated for row in batch.rows):
        raise SayableError("a device does not hold all the data of its stream")
    asked = [Look(row.holdings.train, row.model, None) for row in batch.rows]
    for row, looked in zip(batch.rows, looks(batch, asked), strict=True):
        row.reply(ESTIMATE, to_record({"estimate": looked.mean_gradient}))
