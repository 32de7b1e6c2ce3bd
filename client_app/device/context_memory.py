"""What clients without a ``state-dir`` keep, in Flower's context.

That is serialised with the SuperNode's state. Virtual clients keep the same trees in memory, by
reference.
"""

import json
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context
from numpy.typing import NDArray

from ...core.storage import tree
from ...core.wire.arrays import to_record
from ...core.wire.records import record_at
from ..clients import VirtualContext
from .sample_store import SampleStore

_NAMES = ("forager-run", "forager-samples")
RUN, SAMPLES = _NAMES


def remember(context: Context, name: str, content: tree.Tree) -> None:
    """Put a tree into the context, in place of one of the same name."""
    if isinstance(context, VirtualContext):
        context.keep(name, content)
        return
    arrays: dict[str, NDArray[Any]] = {}
    layout = tree.flatten(content, arrays)
    context.state[name] = to_record({key: array.copy() for key, array in arrays.items()})
    context.state[f"{name}-layout"] = ConfigRecord({"json": json.dumps(layout)})


def recall(context: Context, name: str) -> tree.Tree:
    """Return the tree of a name; an empty one if there is none."""
    if isinstance(context, VirtualContext):
        return dict(context.memory.get(name, {}))
    record = record_at(context.state, name, ArrayRecord)
    layout = record_at(context.state, f"{name}-layout", ConfigRecord)
    if record is None or layout is None:
        return {}
    arrays = {key: array.numpy() for key, array in record.items()}
    return dict(tree.unflatten(json.loads(str(layout["json"])), arrays))


def recall_all(context: Context) -> tree.Tree:
    """Return all that a client keeps in its context, by name."""
    return {name: content for name in _NAMES if (content := recall(context, name))}


def remember_all(context: Context, content: tree.Tree) -> None:
    """Put back what :func:`recall_all` returned."""
    for name in _NAMES:
        if name in content:
            remember(context, name, content[name])


class ContextStore(SampleStore):
    """Keeps samples in Flower's context, where they last as long as the SuperNode and the run."""

    def __init__(
        self, context: Context, made_for: str, capacity: int, capacity_bytes: int = 0
    ) -> None:
        super().__init__(capacity, capacity_bytes)
        self._context, self.made_for = context, made_for
        kept = recall(context, SAMPLES)
        if kept.get("made-for") == made_for:
            self.load_state_dict(kept)

    def commit(self) -> None:
        """Write samples and memo into the context."""
        remember(self._context, SAMPLES, {"made-for": self.made_for, **self.state_dict()})
