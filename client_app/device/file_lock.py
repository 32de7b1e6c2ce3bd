"""One SuperNode, and one process of it at a time, works with what a client keeps on disk."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ...core.storage.files import write_atomically
from ...core.tasks.errors import SayableError

_PATIENCE = 5.0  # seconds; processes of one device follow one another closely
_STILL_THERE = 3600.0  # seconds after which a SuperNode is gone that cannot be looked for
_OWN_ONE = "give every SuperNode a client-id or a state-dir of its own"


class StateInUseError(SayableError):
    """Another process works with what this client keeps; the message says what to do."""


class FileClaim:
    """The right to work with a client's files, which ``path`` stands for, until it is released."""

    def __init__(self, path: Path, client: str, patience: float = _PATIENCE) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whoever began a request may leave it to another thread to end it.
        self._lock = FileLock(path, timeout=patience, mode=0o600, thread_local=False)
        try:
            self._lock.acquire(poll_interval=0.02)
        except Timeout:
            raise StateInUseError(
                f"state-dir {str(path.parent)!r}: another process is using what client {client!r} "
                f"keeps there; {_OWN_ONE}"
            ) from None

    def release(self) -> None:
        """Release it."""
        self._lock.release()


def hold(files: Path, client: str, node_id: int) -> None:
    """Let a client's files be those of this process's SuperNode, its parent, while that lives."""
    path = files.with_suffix(".owner")
    own = {"node": node_id, "process": _process(os.getppid()), "host": socket.gethostname()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".owner-lock"), timeout=_PATIENCE, mode=0o600):
        owner = _owner(path)
        if owner.get("node", node_id) != node_id and _is_there(owner, path):
            raise StateInUseError(
                f"state-dir {str(path.parent)!r}: another SuperNode (process "
                f"{owner['process'] or 'unknown'} on {owner['host']}) holds what client {client!r} "
                f"keeps there; {_OWN_ONE}. If it is gone, remove {path.name}"
            )
        if owner == own:
            os.utime(path)
        else:
            write_atomically(path, json.dumps(own).encode())


def _owner(path: Path) -> dict[str, Any]:
    try:
        owner = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):  # nobody's yet, or nobody can say whose
        return {}
    return owner if isinstance(owner, dict) and owner.keys() >= {"node", "process", "host"} else {}


def _is_there(owner: dict[str, Any], path: Path) -> bool:
    """Return whether a SuperNode lives, as far as can be seen: not on another machine."""
    pid = str(owner["process"]).partition(" ")[0]
    if pid.isdecimal() and owner["host"] == socket.gethostname():
        return _process(int(pid)) == str(owner["process"])
    return time.time() - path.stat().st_mtime < _STILL_THERE


def _process(pid: int) -> str:
    """Return a process, by its number and when it began; nothing where the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"{pid} {stat.rpartition(')')[2].split()[19]}"
