"""The federation of real processes that benchmarks use too, and one that wastes no time."""

import sys
from pathlib import Path

from forager.benchmarks.federation import START_SECONDS, Federation, listens

__all__ = ["EAGER", "START_SECONDS", "Federation", "eager_federation", "listens"]

# Flower's setting: seconds between two looks for a process to start, 1 by default
EAGER = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


def eager_federation(folder: Path) -> Federation:
    """Return a started SuperLink; it and its SuperNodes look for work all the time."""
    program = Path(__file__).with_name("eager_supernode.py")
    return Federation(folder, supernode=[sys.executable, str(program)], more=EAGER)
