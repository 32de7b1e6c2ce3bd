"""Files that are replaced whole or not at all."""

import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new version of a file for writing; it takes the old one's place when it is complete.

    A reader, or a crash at any moment, sees the old content or the new, never a part. If writing
    fails, the old file stays.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "state")
    ...     with replacing(path) as file:
    ...         _ = file.write(b"all of it")
    ...     path.read_bytes()
    b'all of it'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove new versions of a file that a crash left unfinished.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "state")
    ...     _ = path.with_name(".state.0123abcd.tmp").write_bytes(b"half of")
    ...     remove_leftovers(path)
    ...     list(Path(folder).iterdir())
    []
    """
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's content by these bytes."""
    with replacing(path) as file:
        file.write(data)
