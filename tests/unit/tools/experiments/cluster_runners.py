"""Runners for the tests on a Ray cluster, which its workers load by name."""

from __future__ import annotations

import os
import time
from pathlib import Path

from fake_runners import FakeResult, Scalar, steady


def on_a_node(overrides: dict[str, Scalar], *, quiet: bool = True) -> FakeResult:
    """Say which node the run was on; wait until as many runs as nodes are under way."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    place = Path(os.environ["FAKE_PLACE"])
    (place / f"{node}-{overrides['seed']}").write_text(str(os.getpid()))
    deadline = time.monotonic() + 60
    while len({path.name.split("-")[0] for path in place.iterdir()}) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError("the other node has no run")
        time.sleep(0.02)
    result = steady(overrides, quiet=quiet)
    result.rounds[-1] = {"round": 3, "accuracy": 0.5, "node": node}
    return result


def dies_once(overrides: dict[str, Scalar], *, quiet: bool = True) -> FakeResult:
    """Take the worker down with the run of seed 1, the first time."""
    died = Path(os.environ["FAKE_PLACE"]) / "died"
    if overrides["seed"] == 1 and not died.exists():
        died.touch()
        os._exit(9)
    return steady(overrides, quiet=quiet)
