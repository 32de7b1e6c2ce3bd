"""Flower's SuperNode, but it looks for messages five times per second.

Flower's own sleeps for three seconds when there is none, and that is no setting. Most of a short
run would be such sleep. ``test_deployed.py`` waits as Flower does.
"""

import time
from types import SimpleNamespace

from flwr.supernode import start_client_internal  # private: there is no other way to its naps
from flwr.supernode.cli import flower_supernode

_NAP = 0.2  # seconds, at most


def nap(seconds: float) -> None:
    """Sleep, but not for long."""
    time.sleep(min(seconds, _NAP))


if __name__ == "__main__":
    start_client_internal.time = SimpleNamespace(**{**vars(time), "sleep": nap})
    flower_supernode()
