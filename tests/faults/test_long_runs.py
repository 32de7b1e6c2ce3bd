"""Runs that go on for long: what a process holds does not grow with the rounds."""

import gc
from typing import Any, ClassVar

import pytest
from forager.server_app.callbacks.base import Callback
from forager.tools.engine.local import run_local

pytestmark = pytest.mark.timeout(3600)

EARLY, LATE = 100, 300
MOST = 400  # objects: two a round, where one model that stays would be some ten
CONFIGS: dict[str, dict[str, Any]] = {
    "ios": {"strategy": "ios"},
    "gcfl": {"strategy": "gcfl"},
    "auxo": {"strategy": "auxo"},
    "buffer": {"aggregation.buffer": 4, "devices.slow": True},
    "changes in a buffer": {
        "aggregation.buffer": 4,
        "devices.slow": True,
        "downlink": "changes",
        "model": "mlp",
    },
}


class Counting(Callback):
    """Counts what the process holds after some rounds."""

    held: ClassVar[list[int]] = []

    def __init__(self, folder: Any) -> None: ...

    def on_round_end(self, loop: Any) -> None:
        """Count."""
        if loop.round in (EARLY, LATE):
            gc.collect()
            Counting.held.append(len(gc.get_objects()))


@pytest.mark.parametrize("config", CONFIGS)
def test_no_object_stays_from_round_to_round(config, tmp_path):
    Counting.held.clear()
    run_local(
        {
            "num-clients": 20,
            "clients-per-round": 8,
            "num-server-rounds": LATE,
            "local-steps": 1,
            "evaluate-every": LATE,
            "checkpoint.every": 100,
            "report": False,
            "callbacks": "test_long_runs:Counting",
            "output-dir": str(tmp_path),
            **CONFIGS[config],
        }
    )
    early, late = Counting.held
    assert late - early < MOST, f"{late - early} more objects after {LATE - EARLY} rounds"
