"""Derived arrays kept on disk, because on a device every message is a new process."""

import logging
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...storage.files import replacing

Arrays = dict[str, NDArray[Any]]
UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)
"""What numpy raises for an ``.npz`` file that is damaged or is something else."""

_log = logging.getLogger(__name__)


def cache_folder(cache_dir: str) -> Path:
    """Folder for derived files: the given one, else ``forager`` in the user's cache."""
    if cache_dir:
        return Path(cache_dir).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "forager"


def cached_arrays(folder: Path, name: str, build: Callable[[], Arrays]) -> Arrays:
    """Return arrays kept under a name; build them if missing, damaged or impossible to keep."""
    path = folder / f"{name}.npz"
    if path.exists():
        try:
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
        except UNREADABLE as error:
            _log.warning("rebuilding %s, it cannot be read: %s", path, error)
    arrays = build()
    try:
        write_arrays(path, arrays)
    except OSError as error:
        _log.warning("cannot keep %s: %s", path, error)
    return arrays


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an ``.npz`` file that others see complete or not at all."""
    with replacing(path) as file:
        # numpy's stub reads a dict of arrays as its allow_pickle flag
        np.savez(file, **arrays)  # type: ignore[arg-type]
