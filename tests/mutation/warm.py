"""Tests in processes that need not import again what the tree does not hold."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_IMPORTED = [
    "pytest",
    "hypothesis",
    "torch",
    "flwr.app",
    "flwr.serverapp",
    "scipy.stats",
    "sklearn",
]
_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(_IMPORTED)
os.environ["OMP_NUM_THREADS"] = "1"


def passes(tests: Sequence[str], tree: Path, limit: float) -> bool:
    """Return whether tests pass in a tree within some seconds."""
    process = _WARM.Process(target=run, args=(tests, tree))
    process.start()
    process.join(limit)
    if process.exitcode is None:
        os.killpg(process.pid or 0, signal.SIGKILL)  # with what it has started
        process.join()
    return process.exitcode == 0


def run(tests: Sequence[str], tree: Path) -> None:
    """Run tests in a tree until one fails; the exit code is pytest's."""
    os.setsid()
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    sys.path.insert(0, str(tree))
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    sys.exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])))
