"""What a client keeps between rounds, on disk or in Flower's context.

On a device every message starts a new process, and the SuperNode keeps ``context.state`` in memory
only. A node whose config names ``state-dir`` keeps its state there, one file a client, replaced
atomically.
"""

import hashlib
import json
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context

from ..core.storage import tree
from ..core.storage.files import remove_leftovers
from ..core.wire.arrays import to_record
from ..core.wire.records import record_at
from .identity import client_key

_KIND = "client-state"
_RECORD = "forager"


class ClientState(MutableMapping[str, Any]):
    """A client's memory: a dict of named sections, each a tree of arrays, numbers and texts.

    Nothing is kept until :meth:`save`, so a handler that fails half-way leaves the state as it was.

    >>> from flwr.app import RecordDict
    >>> context = Context(1, 2, {"partition-id": 0}, RecordDict(), {})
    >>> state = ClientState(context)
    >>> state["coreset"] = {"indices": np.array([3, 1]), "round": 7}
    >>> state.save()
    >>> ClientState(context)["coreset"]
    {'indices': array([3, 1]), 'round': 7}
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._path = state_path(context)
        self._sections = self._load()

    def __getitem__(self, name: str) -> Any:
        return self._sections[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._sections[name] = value

    def __delitem__(self, name: str) -> None:
        del self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def save(self) -> None:
        """Make the present content what the next message will find."""
        if self._path is not None:
            tree.save(self._path, self._sections, _KIND)
        else:
            _store(self._context, self._sections)

    def _load(self) -> dict[str, Any]:
        if self._path is None:
            return _restore(self._context)
        remove_leftovers(self._path)
        if not self._path.exists():
            return {}
        return tree.load(self._path, _KIND)


def state_path(context: Context) -> Path | None:
    """Return the file of a client's state, or None where it lives in the context."""
    folder = context.node_config.get("state-dir")
    if not folder:
        return None
    key = client_key(context) or "device"
    # Keys come from configs and may hold anything; a digest is a safe file name, the prefix a
    # readable one.
    digest = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
    readable = "".join(c if c.isalnum() else "-" for c in key)[:40]
    return Path(str(folder)) / f"{readable}-{digest}.safetensors"


def _store(context: Context, sections: dict[str, Any]) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    layout = tree.flatten(sections, arrays)
    context.state[_RECORD] = to_record({name: array.copy() for name, array in arrays.items()})
    context.state[f"{_RECORD}-layout"] = ConfigRecord({"json": json.dumps(layout)})


def _restore(context: Context) -> dict[str, Any]:
    record = record_at(context.state, _RECORD, ArrayRecord)
    layout = record_at(context.state, f"{_RECORD}-layout", ConfigRecord)
    if record is None or layout is None:
        return {}
    arrays = {name: array.numpy() for name, array in record.items()}
    return dict(tree.unflatten(json.loads(str(layout["json"])), arrays))
