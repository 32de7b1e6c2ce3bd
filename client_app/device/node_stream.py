"""Where the samples of a device come from, and how many it can store.

The node config says what differs from device to device; keys that begin with ``stream-`` are read
here. All else is the run's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ...core.learning.job import batch_seed
from ...core.methods.stream import StreamSettings
from ...core.tasks.errors import SayableError, invalid
from ...core.tasks.streams.arrivals import Stream
from ...core.tasks.streams.sample_files import AfterReading
from ...core.tasks.streams.sources import LIMIT, FolderStream, OwnStream, PartitionStream
from ..batch import ClientRow

_SETTLE = 2.0  # seconds
_NEEDS = {  # what a key needs to have an effect
    "stream-velocity": ("stream-source",),
    "stream-classes": ("stream-path",),
    "stream-settle": ("stream-path",),
    "stream-read": ("stream-path",),
    "stream-limit": ("stream-path", "stream-source"),
}
_KEYS = ("stream-path", "stream-source", "stream-capacity", "stream-capacity-bytes", *_NEEDS)


@dataclass(frozen=True)
class Room:
    """What a device can store: samples, and bytes that they may take (0 for any number)."""

    samples: int
    size: int


def room_of(row: ClientRow) -> Room:
    """Return what a device can store: as its node config says, else as the run does."""
    node, run = row.context.node_config, row.config[StreamSettings]
    size = _whole(node, "stream-capacity-bytes", 0, least=0)
    one = 4 * math.prod(row.side.packing.shape)
    if 0 < size < one:
        raise _refused("stream-capacity-bytes", size, f"at least {one}, the bytes of one sample")
    return Room(_whole(node, "stream-capacity", run.capacity, least=1), size)


def open_stream(row: ClientRow) -> Stream:
    """Return a folder that fills, the user's own source, or the client's data replayed."""
    node, side, config = row.context.node_config, row.side, row.config
    _check_keys(node)
    if "data-path" in node:  # a device without the server's data knows a sample's shape by it
        side.holdings([row.context])
    classes, packing = side.num_classes, side.packing
    shape = packing.input_shape
    if not packing.plain and ("stream-path" in node or "stream-source" in node):
        raise SayableError(
            f"node config: a folder or source gives samples with a class each, and task "
            f"{config.task!r} is {side.problem.kind}; give data-path alone"
        )
    limit = _whole(node, "stream-limit", LIMIT, least=1)
    if "stream-path" in node:
        folder = Path(str(node["stream-path"]))
        return FolderStream(
            folder,
            shape,
            classes,
            classes=_names(node, classes),
            limit=limit,
            settle=_number(node, "stream-settle", _SETTLE),
            after=_after(node, folder),
        )
    if "stream-source" in node:
        speed = _number(node, "stream-velocity", 0.0)
        return OwnStream(str(node["stream-source"]), shape, classes, velocity=speed, limit=limit)
    settings, data = config[StreamSettings], side.unscaled(row.context).train
    if not len(data):
        raise SayableError("this client has no training data")
    speed = settings.velocity * (len(data) if settings.velocity < 1 else 1)
    x, y = data.x.numpy(), data.y.numpy()
    return PartitionStream(
        packing.pack(x, y),
        side.problem.strata(y),
        speed,
        seed=config.seed,
        partition_id=batch_seed(config.seed, row.key, 0) % 2**31,
        drift=settings.drift,
    )


def _check_keys(node: Mapping[str, object]) -> None:
    for key in node:
        if key.startswith("stream-") and key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise SayableError(f"node config: {key!r} is not known: use {', '.join(_KEYS)}{hint}")
        if key in _NEEDS and not any(needed in node for needed in _NEEDS[key]):
            needed = " or ".join(_NEEDS[key])
            raise _refused(key, node[key], f"it only together with {needed}")


def _names(node: Mapping[str, object], classes: int) -> list[str]:
    """Return the names of the sub-folders in the order of the classes; none if not given."""
    if "stream-classes" not in node:
        return []
    names = [name.strip() for name in str(node["stream-classes"]).split(",")]
    if len(names) != classes or len(set(names)) != classes or not all(names):
        allowed = f"{classes} different names in the order of the classes, comma-separated"
        raise _refused("stream-classes", node["stream-classes"], allowed)
    return names


def _after(node: Mapping[str, object], folder: Path) -> AfterReading:
    after = AfterReading.of(node.get("stream-read", "keep"), folder)
    if not after.keeps and not node.get("state-dir"):
        allowed = '"keep", or state-dir beside it: without, a restart would lose what was read'
        raise _refused("stream-read", node["stream-read"], allowed)
    return after


def _whole(node: Mapping[str, object], key: str, default: int, least: int) -> int:
    value = node.get(key, default)
    if type(value) is not int or value < least:
        raise _refused(key, value, f"a whole number of at least {least}")
    return value


def _number(node: Mapping[str, object], key: str, default: float) -> float:
    value = node.get(key, default)
    if type(value) not in (int, float) or not 0 <= float(str(value)) < math.inf:
        raise _refused(key, value, "a finite number of at least 0")
    return float(str(value))


def _refused(key: str, value: object, allowed: str) -> SayableError:
    return SayableError(f"node config: {invalid(key, value, allowed)}")
