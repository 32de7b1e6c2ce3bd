"""A device installs little: what only servers and simulations need is not imported there."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = (
    *("matplotlib", "pandas", "pyarrow", "seaborn", "datasets", "flwr_datasets"),
    *("sklearn", "scipy", "ray", "mlflow", "wandb", "tensorboard", "prometheus_client"),
    *("torchvision", "PIL"),
)
BLOCK = f"""
import importlib.abc, sys

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Block())
"""
PROGRAM = """
import importlib, json, pkgutil
import forager.client, forager.client_app as package

found = {}
names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    importlib.import_module(name)
found["modules"] = len(names)

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import answer_one
from forager.core.config import default_config, read_config
from forager.core.learning.trainer import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

def reply_to(keys, path):
    run_config = {**default_config(), "task": "npz", "data.path": path, **keys}
    model = load_task(read_config(run_config).task_spec()).build_model()
    content = {"arrays": to_record(read_arrays(model)), "config": ConfigRecord({"server-round": 1})}
    message = Message(RecordDict(content), dst_node_id=1000, message_type="train")
    message.metadata.__dict__["_message_id"] = "1"
    node_config = {"client-id": "camera", "data-path": path}
    context = Context(1, 1000, node_config, RecordDict(), run_config)
    reply = answer_one(message, context)
    return [reply.error.reason] if reply.has_error() else sorted(reply.content)

def error_of(keys):
    try:
        load_task(read_config({**default_config(), **keys}).task_spec()).client_data(0, 4)
    except ValueError as error:
        return str(error)

path, cache = sys.argv[1:]
found["coreset"] = reply_to({"data-selector": "random"}, path)
found["support"] = reply_to({"similarity": "centred-overlap", "cohorts": "similarity"}, path)
found["blobs"] = error_of({"task": "blobs", "data.cache-dir": cache})
for kind in ("iid", "shards"):
    found[kind] = error_of({"task": "synthetic", "partition": kind, "data.cache-dir": cache})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without the extras says of itself; one, as loading torch takes long."""
    folder = tmp_path_factory.mktemp("device")
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(size=(40, 5)), "y_train": rng.integers(0, 3, 40)}
    arrays |= {"x_test": rng.normal(size=(9, 5)), "y_test": rng.integers(0, 3, 9)}
    np.savez(folder / "own.npz", **arrays)
    result = subprocess.run(
        [sys.executable, "-c", BLOCK + PROGRAM, str(folder / "own.npz"), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout.splitlines()[-1]))


def test_all_that_a_client_may_import_needs_no_extra(device: dict[str, Any]) -> None:
    assert device["modules"] > 20


@pytest.mark.parametrize("record", ["coreset", "support"])
def test_a_device_trains_without_any_extra(device: dict[str, Any], record: str) -> None:
    assert {"arrays", "metrics", record} <= set(device[record]), device[record]


def test_what_is_missing_is_named_with_its_extra(device: dict[str, Any]) -> None:
    missing = "task = 'blobs': the package sklearn is missing: pip install 'forager-fl[datasets]'"
    assert device["blobs"] == missing
    assert re.fullmatch(
        r"partition = 'shards': the package \w+ is missing: pip install 'forager-fl\[datasets\]'",
        device["shards"],
    )
    assert device["iid"] is None  # made without flwr-datasets


def test_the_metadata_have_ranges_and_the_extras_that_errors_name() -> None:
    from forager.core.tasks.errors import EXTRAS as NAMED

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "forager-fl"
    assert set(NAMED.values()) <= set(project["optional-dependencies"])
    assert {"flwr>=1.39,<2", "grpcio>=1.70"} <= set(project["dependencies"])
    assert not [line for line in project["dependencies"] if "==" in line]
    pinned = (ROOT / "constraints.txt").read_text()
    assert {"flwr==1.39.0", "torch==2.13.0"} <= set(pinned.split())
