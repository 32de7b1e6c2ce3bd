"""On a device every message is a process: what a message does not need is not imported for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forager.core.config import default_config
from forager.tools.flower.env import PROJECT

LEAN = PROJECT / "docker" / "lean" / "flwr-clientapp"
HEAVY = (
    "forager.core.config",
    "torch",
    "torchvision",
    "sklearn",
    "scipy",
    "matplotlib",
    "pandas",
    "datasets",
)
SCRIPT = """
import json, sys
from forager.benchmarks.one_message import answer_one
for kind in sys.argv[2].split(","):
    reply = answer_one(json.loads(sys.argv[1]), kind, json.loads(sys.argv[3]))
    assert reply.has_content(), reply.error
print(json.dumps([name for name in json.loads(sys.argv[4]) if name in sys.modules]))
"""
# Flower's program, the app, and what hands a message to the worker that stays.
START = """
import runpy, sys
program = sys.argv[1]
sys.argv = ["flwr-clientapp", "--help"]
try:
    runpy.run_path(program, run_name="__main__")
except SystemExit:
    import forager.client_app.app, forager.client_app.device.resident
    heavy = ("sqlalchemy", "alembic", "fastapi", "pydantic", "torch", "forager.core.config")
    from flwr.supernode.runtime.run_clientapp import pull_and_inflate_object_from_tree as pull
    print([name for name in heavy if name in sys.modules], getattr(pull, "keywords", {}))
"""


@pytest.mark.parametrize(
    ("kinds", "allowed"),
    [("query.identify", set()), ("train,evaluate", {"forager.core.config", "torch"})],
)
def test_what_a_message_imports(kinds: str, allowed: set[str], tmp_path: Path) -> None:
    own = tmp_path / "own.npz"
    np.savez(own, x_train=np.ones((30, 64), np.float32), y_train=np.arange(30) % 10)
    npz = {"task": "npz", "data.num-classes": 10, "data.client-test-share": 0.2}
    run = {**default_config(), **npz}
    node = {"client-id": "camera", "data-path": str(own)}
    arguments = [json.dumps(run), kinds, json.dumps(node), json.dumps(HEAVY)]
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "selectors")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(done.stdout)) <= allowed


def test_what_a_device_imports_before_it_reads_a_message() -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, str(LEAN)],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    *told, loaded = done.stdout.splitlines()
    assert "--runtime-api-address" in "".join(told)
    assert loaded == "[] {'initial_backoff': 0.05}", "and soon looks again for what has not come"
    assert os.access(LEAN, os.X_OK)
