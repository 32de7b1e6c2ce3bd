"""All that comes from Flower's private modules, each with what happens where a version lacks it.

Everything else is imported from ``flwr.app``, ``flwr.serverapp`` and ``flwr.clientapp``, which are
the same from 1.39 to 1.42.
"""

import copy
import importlib
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message

if TYPE_CHECKING:
    # What Grid.get_nodes returns, and what Grid.run does: for signatures only.
    from flwr.proto.node_pb2 import NodeInfo as NodeInfo
    from flwr.supercore.run import Run as Run
else:
    NodeInfo = Run = Any

_NAP, _SOON = 0.05, 1.0  # seconds between looks for an object on its way, and of such looks
_PAIR = re.compile(r"(\S+?)=('[^']*'|\"[^\"]*\"|\S+)")

try:  # Message(...) refuses to work in a process that is no task of Flower's
    from flwr.supercore.task_identity import TaskIdentity as TaskIdentity
except ImportError:  # a version that asks for none

    class TaskIdentity:  # type: ignore[no-redef]
        """Accepts what is set, and ignores it."""


def empty_run() -> Any:
    """Return a run for a grid that is not Flower's; nothing where there is no such class."""
    run = _from("flwr.supercore.run", "Run")
    return None if run is None else run.create_empty(1)


def is_simulation(grid: Any) -> bool:
    """Return whether a grid is that of Flower's simulation; no where its name has changed."""
    return type(grid).__name__ == "InMemoryGrid"


def in_simulation() -> bool:
    """Return whether Flower's simulation runs here: a SuperNode never imports Ray's actors."""
    ray = sys.modules.get("ray")
    actors = "flwr.simulation.ray_transport.ray_actor" in sys.modules
    return ray is not None and actors and bool(ray.is_initialized())


def is_remote(grid: Any) -> bool:
    """Return whether a grid talks to a SuperLink elsewhere; no where its name has changed."""
    return type(grid).__name__ == "HttpGrid"


def announced_replies(
    grid: Any, message_ids: Iterable[str]
) -> Iterator[tuple[Message, Callable[[], list[Message]]]]:
    """Yield what has been announced to a remote grid, each with what fetches its content.

    Flower's own way fetches all of them, and raises what any of them raises.
    """
    request = needed("flwr.proto.runtime_pb2", "PullAppMessagesRequest")
    came = grid._runtime_client.PullMessages(request(message_ids=message_ids))
    for head, tree in zip(came.messages_list, came.message_object_trees, strict=True):
        alone = copy.copy(grid)
        only = type(came)(messages_list=[head], message_object_trees=[tree])
        alone._client = _Announced(grid._runtime_client, only)

        def fetch(alone: Any = alone) -> list[Message]:
            return list(alone.pull_messages([]))

        yield _serde("message_from_proto")(head), fetch


def is_lost_connection(error: Exception) -> bool:
    """Return whether it is the way to the SuperLink that has failed, not what came over it."""
    return isinstance(error, (OSError, _from("httpx", "HTTPError") or OSError))


def is_busy(error: Exception) -> bool:
    """Return whether the SuperLink failed, as with a database locked by a large model's parts."""
    return getattr(getattr(error, "response", None), "status_code", 0) >= 500


class _Announced:
    """A connection to the SuperLink on which one reply has been announced already."""

    def __init__(self, client: Any, came: Any) -> None:
        self._client, self._came = client, came
        self._began = time.monotonic()

    def PullMessages(self, request: Any) -> Any:
        return self._came

    def PullObject(self, request: Any) -> Any:
        # Who announces a reply sends its objects next: Flower would look again after a second.
        while True:
            answer = self._client.PullObject(request)
            missing = answer.object_found and not answer.object_available
            if not missing or time.monotonic() > self._began + _SOON:
                return answer
            time.sleep(_NAP)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def message_to_bytes(message: Message) -> bytes:
    """Return a message as bytes, in the form in which Flower itself sends it."""
    return bytes(_serde("message_to_proto")(message).SerializeToString())


def message_from_bytes(data: bytes) -> Message:
    """Return the message of :func:`message_to_bytes`."""
    message: Message = _serde("message_from_proto")(_proto("Message").FromString(data))
    return message


def context_to_bytes(context: Context) -> bytes:
    """Return a context as bytes."""
    return bytes(_serde("context_to_proto")(context).SerializeToString())


def context_from_bytes(data: bytes) -> Context:
    """Return the context of :func:`context_to_bytes`."""
    context: Context = _serde("context_from_proto")(_proto("Context").FromString(data))
    return context


def by_wire(message: Message) -> Message:
    """Return what the other side makes of a message."""
    copied: Message = _serde("message_from_proto")(_serde("message_to_proto")(message))
    return copied


def parse_config_args(texts: list[str]) -> dict[str, Any]:
    """Return the keys and values of ``-c`` options as Flower reads them."""
    parse = _from("flwr.common.config", "parse_config_args") or _parse_by_toml
    return dict(parse(texts))


def _parse_by_toml(texts: list[str]) -> dict[str, Any]:
    """Read pairs, or one ``.toml`` file, where Flower's own reader is somewhere else.

    >>> _parse_by_toml(["prox.mu=0.1 task='a b'", "seed=3"])
    {'prox.mu': 0.1, 'task': 'a b', 'seed': 3}
    """
    if len(texts) == 1 and texts[0].endswith(".toml"):
        tables = tomllib.loads(Path(texts[0]).read_text(encoding="utf-8"))
        return {
            f"{name}.{key}" if isinstance(value, dict) else name: entry
            for name, value in tables.items()
            for key, entry in (value.items() if isinstance(value, dict) else [("", value)])
        }
    pairs = (match for text in texts for match in _PAIR.finditer(text))
    return {key: tomllib.loads(f"it = {value}")["it"] for key, value in (p.groups() for p in pairs)}


def needed(module: str, name: str) -> Any:
    """Return something private of Flower's for which there is no substitute.

    >>> needed("flwr.common.serde", "no_such_thing")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    RuntimeError: flwr ... has no flwr.common.serde.no_such_thing, which is needed here...
    """
    found = _from(module, name)
    if found is None:
        from importlib.metadata import version

        raise RuntimeError(
            f"flwr {version('flwr')} has no {module}.{name}, which is needed here: resident "
            "workers, checks of messages on the local engine, deployed runs and light clients "
            "under load work with flwr 1.39 to 1.42"
        )
    return found


def _serde(name: str) -> Any:
    return needed("flwr.common.serde", name)


def _proto(name: str) -> Any:
    return needed("flwr.proto.message_pb2", name)


def _from(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
