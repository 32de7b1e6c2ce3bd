"""Where the samples of a device come from."""

from pathlib import Path

from ..core.learning.batches import batch_seed
from ..core.methods.stream import Stream as StreamSettings
from ..core.tasks.streams.arrivals import Stream
from ..core.tasks.streams.sources import FolderStream, OwnStream, PartitionStream
from .request import ClientRequest


def open_stream(request: ClientRequest) -> Stream:
    """Return a folder that fills, the user's own source, or the client's data played anew."""
    node, task, config = request.context.node_config, request.task, request.config
    if "data-path" in node:  # a device without the server's data knows a sample's shape by it
        task.device_data(str(node["data-path"]))
    if "stream-path" in node:
        return FolderStream(Path(str(node["stream-path"])), task.input_shape, task.num_classes)
    if "stream-source" in node:
        return OwnStream(str(node["stream-source"]), task.input_shape, task.num_classes)
    settings, data = config[StreamSettings], request.data
    speed = settings.velocity * (len(data) if settings.velocity < 1 else 1)
    return PartitionStream(
        data.x.numpy(),
        data.y.numpy(),
        speed,
        seed=config.seed,
        partition_id=batch_seed(config.seed, request.key, 0) % 2**31,
        drift=settings.drift,
        burst=settings.burst,
    )
