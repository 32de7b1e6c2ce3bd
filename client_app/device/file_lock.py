"""One process at a time works with what a client keeps on disk."""

import os
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_PATIENCE = 5.0  # seconds; processes of one device follow one another closely
_PAUSE = 0.02


class StateInUseError(RuntimeError):
    """Another process works with what this client keeps; the message says what to do."""


class Claim:
    """The right to work with a client's files, until it is given back or the process ends.

    Parameters
    ----------
    path : Path
        A file that stands for the others; it is made if it is not there, and stays.
    client : str
        Whose files they are.
    patience : float
        Seconds to wait for another process to be done.

    Raises
    ------
    StateInUseError
        If the other process is not done by then.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> claim = Claim(Path(folder.name, "lock"), "camera")
    >>> claim.release()
    >>> Claim(Path(folder.name, "lock"), "camera").release()
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, client: str, patience: float = _PATIENCE) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + patience
        while not _locked(self._descriptor):
            if time.monotonic() > deadline:
                self.release()
                raise StateInUseError(
                    f"state-dir {str(path.parent)!r}: another process is using what client "
                    f"{client!r} keeps there; give every SuperNode a client-id or a state-dir of "
                    "its own"
                )
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Release it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.release()


def _locked(descriptor: int) -> bool:
    """Try to lock a file for as long as it is open; return whether that worked."""
    if sys.platform == "win32":
        return True  # sharing a state-dir is not noticed there
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
