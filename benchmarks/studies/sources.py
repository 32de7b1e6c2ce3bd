"""Where the studies look for data that no package downloads."""

import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ...tools.experiments.records import SweepError

Arrays = dict[str, NDArray[Any]]


def source(name: str) -> str:
    """Return the path of a file below ``FORAGER_DATA``."""
    folder = os.environ.get("FORAGER_DATA", "")
    path = Path(folder).expanduser() / name
    if not folder or not path.exists():
        raise SweepError(
            f"FORAGER_DATA = {folder!r} has no {name}; set it to the folder of the studies' data"
        )
    return str(path.resolve())
