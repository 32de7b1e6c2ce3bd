"""A copy of the app that holds only what Flower may pack.

``flwr run`` looks at every file below a folder, those of the environment included, which takes 5
seconds. To clients travels what ``fab-include`` in ``pyproject.toml`` lists: in the copy also the
modules of the user's own that the run config names, and no others.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core.config.overrides import own_modules, toml_value
from .env import run_config

_KINDS = (".py", ".toml", ".md", ".yaml", ".yml", ".json", ".jsonl")  # that Flower takes
_ALSO = (".gitignore", "LICENSE")
_LEFT_OUT = ("__pycache__", "build", "comparisons", "dist", "runs", "site", "sweeps")
_LARGEST = 10 * 1024 * 1024  # bytes; Flower's limit of the whole bundle
_LIST = "fab-include = ["
_TABLES = re.compile(r"^\[tool\.flwr\.app\.config[^\n]*\n(?:(?!\[)[^\n]*(?:\n|$))*", re.MULTILINE)


def own_code(config: Mapping[str, object], app: Path) -> list[str]:
    """Return the patterns of modules beside an app's ``pyproject.toml`` that a run config names."""
    if _LIST not in (app / "pyproject.toml").read_text(encoding="utf-8"):
        return []  # Flower packs all there is
    names = dict.fromkeys(module.partition(".")[0] for module in own_modules(config))
    files = [f"/{name}.py" for name in names if (app / f"{name}.py").is_file()]
    return files + [f"/{name}/**/*.py" for name in names if (app / name).is_dir()]


def travels(own: Sequence[str]) -> str:
    r"""Return the line that says which of the user's own files every client gets.

    >>> travels(["/mine.py"])
    'Every client gets, beside the app itself: mine.py\n'
    """
    names = ", ".join(pattern.strip("/") for pattern in own)
    return f"Every client gets, beside the app itself: {names}\n" if own else ""


def copy_to_pack(
    app: Path, place: Path, own: Sequence[str] = (), config: Mapping[str, object] | None = None
) -> Path:
    """Copy what Flower may pack of an app; return the copy.

    Flower refuses keys that an app does not declare: those of `config` are added to the copy.
    """
    for where, folders, files in os.walk(app):
        here = Path(where)
        folders[:] = [name for name in folders if _is_source(here / name)]
        for file in (here / name for name in files if name.endswith(_KINDS) or name in _ALSO):
            if not file.is_symlink() and file.stat().st_size <= _LARGEST:
                copy = place / file.relative_to(app)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
    settings = place / "pyproject.toml"
    listed = "".join(f'"{pattern}", ' for pattern in own)
    text = settings.read_text(encoding="utf-8").replace(_LIST, f"{_LIST}{listed}", 1)
    declared = run_config(app) or {}
    if declared and config and config.keys() - declared.keys():
        text = _TABLES.sub("", text) + "\n[tool.flwr.app.config]\n"
        both = {**declared, **config}
        text += "".join(f"{key} = {toml_value(value)}\n" for key, value in both.items())
    settings.write_text(text, encoding="utf-8")
    return place


def _is_source(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in _LEFT_OUT
    return not hidden and not (folder / "pyvenv.cfg").exists()
