"""One process at a time works with what a client keeps on disk."""

from pathlib import Path

from filelock import FileLock, Timeout

from ...core.tasks.errors import SayableError

_PATIENCE = 5.0  # seconds; processes of one device follow one another closely


class StateInUseError(SayableError):
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
        # Whoever began a request may leave it to another thread to end it.
        self._lock = FileLock(path, timeout=patience, mode=0o600, thread_local=False)
        try:
            self._lock.acquire(poll_interval=0.02)
        except Timeout:
            raise StateInUseError(
                f"state-dir {str(path.parent)!r}: another process is using what client {client!r} "
                "keeps there; give every SuperNode a client-id or a state-dir of its own"
            ) from None

    def release(self) -> None:
        """Release it."""
        self._lock.release()
