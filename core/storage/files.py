"""Files that are replaced whole or not at all."""

import glob
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new version of a file for writing; it takes the old one's place when it is complete.

    A reader, or a crash at any moment, sees the old content or the new, never a part. If writing
    fails, the old file stays. When this returns, a power cut cannot bring the old one back.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove new versions of a file that a crash left unfinished."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        leftover.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's content by these bytes."""
    with replacing(path) as file:
        file.write(data)


def set_aside(path: Path, why: str, *, companions: Sequence[str] = ()) -> Path:
    """Move a useless file out of the way, where it stays; return where it is now."""
    before = _set_aside_before(path, why)
    target = path.with_name(f"{path.name}.{why}-{max(before, default=0) + 1}")
    for ending in companions:
        companion = path.with_name(path.name + ending)
        if companion.exists():
            companion.replace(target.with_name(target.name + ending))
    path.replace(target)
    _sync_folder(path.parent)
    return target


def _set_aside_before(path: Path, why: str) -> list[int]:
    numbers = (
        other.name.rpartition("-")[2]
        for other in path.parent.glob(f"{glob.escape(path.name)}.{why}-*")
    )
    return [int(number) for number in numbers if number.isdecimal()]


def _sync_folder(folder: Path) -> None:
    """Make sure that a change of names in a folder survives a power cut."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
