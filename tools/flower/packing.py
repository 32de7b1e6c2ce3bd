"""A copy of the app that holds only what Flower may pack.

``flwr run`` looks at every file below a folder before it decides what to pack. In a checkout most
of the 80,000 files are those of the environment, and looking at them takes 5 seconds of computing.
"""

import os
import shutil
from pathlib import Path

_KINDS = (".py", ".toml", ".md", ".yaml", ".yml", ".json", ".jsonl")  # that Flower takes
_ALSO = (".gitignore", "LICENSE")
_LEFT_OUT = ("__pycache__", "build", "comparisons", "dist", "runs", "site", "sweeps")
_LARGEST = 10 * 1024 * 1024  # bytes; Flower's limit of the whole bundle


def copy_to_pack(app: Path, place: Path) -> Path:
    """Copy what Flower may pack of an app; return the copy.

    Parameters
    ----------
    app : Path
        The project folder.
    place : Path
        The copy, which is made. Flower accepts letters, digits and hyphens in its name.
    """
    for where, folders, files in os.walk(app):
        here = Path(where)
        folders[:] = [name for name in folders if _is_source(here / name)]
        for file in (here / name for name in files if _is_packed(name)):
            if not file.is_symlink() and file.stat().st_size <= _LARGEST:
                copy = place / file.relative_to(app)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
    return place


def _is_source(folder: Path) -> bool:
    name = folder.name
    environment = (folder / "pyvenv.cfg").exists()
    return not (name.startswith(".") or name in _LEFT_OUT or environment)


def _is_packed(name: str) -> bool:
    return name.endswith(_KINDS) or name in _ALSO
