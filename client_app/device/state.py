"""What a client keeps between the messages of a run, on disk or in Flower's context.

On a device every message starts a new process, and the SuperNode keeps ``context.state`` in memory
only. A node with a ``state-dir`` keeps its state there, one file per client and run, replaced
atomically. Virtual clients keep the same trees in memory. Samples are in ``sample_store.py``.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context
from numpy.typing import NDArray

from ...core.storage import tree
from ...core.storage.files import remove_leftovers, set_aside
from ...core.wire.arrays import to_record
from ...core.wire.records import record_at
from ..clients import VirtualContext, client_key
from .file_lock import hold
from .sample_store import SampleStore

_log = logging.getLogger("forager")

_KIND = "client-state"
_NAMES = ("forager-run", "forager-samples")
RUN, SAMPLES = _NAMES
_RUNS = 4  # whose state stays on disk: several may take turns, and the last may be resumed


class ClientState(MutableMapping[str, Any]):
    """A client's memory: a dict of named sections, each a tree of arrays, numbers and texts.

    It belongs to a run, and nothing is kept until :meth:`save`. A run that goes back to an earlier
    round does not find what came of later ones; on disk the state before the last training stays.
    """

    def __init__(
        self,
        context: Context,
        run: str | None = None,
        server_round: int | None = None,
        *,
        training: bool = False,
    ) -> None:
        self._context = context
        self._files = state_path(context)
        self._training = training  # which may follow, or come after, questions of its round
        kept = self._load(run, server_round)
        self.run = str(kept.get("run", context.run_id)) if run is None else run
        self._sections: dict[str, Any] = dict(kept.get("sections", {}))
        self._known = bool(kept)
        now = server_round or 0
        self._round = max(int(kept.get("round", 0)), now)
        self._trained = now if training else int(kept.get("trained", 0))

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
        """Make the present content what the next message of the run will find."""
        if not (self._sections or self._known):
            return
        content = {
            "run": self.run,
            "round": self._round,
            "trained": self._trained,
            "sections": self._sections,
        }
        if self._files is None:
            remember(self._context, RUN, content)
            return
        path = run_path(self._files, self.run)
        if self._training and self._found == path:
            # If the next step is never done, this is still what the message found.
            path.replace(_before(path))
        tree.save(path, content, _KIND)
        for old in _run_paths(self._files)[:-_RUNS]:
            for file in old.parent.glob(f"{old.name}*"):
                file.unlink(missing_ok=True)

    def _load(self, run: str | None, server_round: int | None) -> tree.Tree:
        """Return what was saved, of a run or of the last one, unless it is of a later round."""
        self._found: Path | None = None
        if self._files is None:
            kept = recall(self._context, RUN)
            return kept if self._is_usable(kept, run, server_round) else {}
        paths = _run_paths(self._files)[-1:] if run is None else [run_path(self._files, run)]
        for now in paths:
            remove_leftovers(now)
            for path in (now, _before(now)):
                kept = _read(path)
                if self._is_usable(kept, run, server_round):
                    self._found = path
                    return kept
        return {}

    def _is_usable(self, kept: tree.Tree, run: str | None, server_round: int | None) -> bool:
        """Return whether this run saved something, and not in a later round than now."""
        if not kept or run not in (None, kept["run"]):
            return False
        saved, trained = int(kept["round"]), int(kept["trained"])
        if server_round is None or (
            saved <= server_round and not (self._training and trained >= server_round)
        ):
            return True
        if saved > server_round:  # else the round is repeated
            _log.warning(
                "client %s: its state is from round %d, and this is round %d: it starts afresh",
                *(client_key(self._context), saved, server_round),
            )
        return False


def state_path(context: Context) -> Path | None:
    """Return what the names of a client's files begin with, or None if it has no ``state-dir``."""
    folder = context.node_config.get("state-dir")
    if not folder:
        return None
    key = client_key(context) or "device"
    # Keys come from configs and may hold anything; a digest is a safe file name, the prefix a
    # readable one.
    readable = "".join(c if c.isalnum() else "-" for c in key)[:40]
    return Path(str(folder)) / f"{readable}-{_digest(key)}"


def hold_files(context: Context) -> None:
    """Let a client's files, if it has any, be its SuperNode's alone; see :func:`file_lock.hold`."""
    files = state_path(context)
    if files is not None:
        hold(files, client_key(context), context.node_id)


def run_path(files: Path, run: str) -> Path:
    """Return the file of a client's state in a run."""
    return files.with_name(f"{files.name}.run-{_digest(run)}.safetensors")


def _before(path: Path) -> Path:
    """Return the file of the state as it was before the last training."""
    return path.with_name(f"{path.name}.before")


def _run_paths(files: Path) -> list[Path]:
    """Return the files of a client's states, the one that was saved last at the end."""
    found = files.parent.glob(f"{files.name}.run-*.safetensors")
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _read(path: Path) -> tree.Tree:
    """Return what is in a file, if there is one; if it cannot be read, it is set aside."""
    if not path.exists():
        return {}
    try:
        return tree.load(path, _KIND)
    except tree.TreeError as error:
        _log.warning("%s; set aside as %s", error, set_aside(path, "damaged").name)
        return {}


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
