"""The federation of real processes that benchmarks use too, and one that wastes no time."""

import os
import sys
from pathlib import Path

from forager.benchmarks.federation import START_SECONDS, Federation, listens
from forager.tools.flower.env import PROJECT, environment

__all__ = ["EAGER", "START_SECONDS", "Federation", "eager_federation", "listens"]

# Flower's setting: seconds between two looks for a process to start, 1 by default
EAGER = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}  # each look takes CPU, too
_LEAN = PROJECT / "docker" / "lean"  # what devices run


def eager_federation(folder: Path) -> Federation:
    """Return a started SuperLink; it and its SuperNodes look for work all the time."""
    path = os.pathsep.join([str(_LEAN), environment(folder)["PATH"]])
    program = [sys.executable, str(_LEAN / "flower-supernode")]
    return Federation(folder, supernode=program, more={**EAGER, "PATH": path})
