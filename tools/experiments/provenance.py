"""Where a number comes from: the commit and the versions that made it."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("torch", "numpy", "flwr")


@cache
def commit(root: Path = ROOT) -> str:
    """Return the commit, with a plus sign if files have changed since; empty outside a checkout."""
    try:
        short = _git(root, "rev-parse", "--short", "HEAD")
        return short + ("+" if _git(root, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@cache
def versions() -> dict[str, str]:
    """Return the versions of what computes, and of Python."""
    return {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()}
