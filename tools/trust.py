"""Whose code a command runs: the user's own, and that of a run's folder only if it is trusted."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ..core.config.overrides import own_modules
from ..server_app.run_folder import RunFolderError
from .flower.env import app_settings


def check_trusted(folder: Path, config: Mapping[str, object], trust: bool) -> None:
    """Refuse what a run's folder says if it names modules to import, unless it is trusted."""
    named = _of_others(config)
    if named and not trust:
        raise RunFolderError(
            f"{folder / 'config.json'} names code that would run: {', '.join(named.values())}. If "
            "you know it, add --trust (in Python, trust=True)"
        )


def find_own_modules() -> None:
    """Let modules in the current folder be imported: after all others, so that they shadow none."""
    if "" not in sys.path:
        sys.path.append("")


def trust_option(config: Mapping[str, object]) -> str:
    """Return what has to be added to a command that goes on with a run of this config."""
    return " --trust" if _of_others(config) else ""


def _of_others(config: Mapping[str, object]) -> dict[str, str]:
    """Return the modules that are not those of the app in the current folder."""
    own = app_settings()
    return own_modules({key: value for key, value in config.items() if own.get(key) != value})
