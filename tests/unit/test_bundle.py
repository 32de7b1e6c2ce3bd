"""The bundle that Flower sends to the ServerApp and to devices: what runs, and nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLWR = Path(sys.executable).with_name("flwr")
# Imports everything that is in the bundle, from there, and all that methods name as text.
IMPORT_ALL = """
import importlib, pathlib, sys
root = pathlib.Path.cwd()
import forager
assert pathlib.Path(forager.__file__).is_relative_to(root), forager.__file__
for file in sorted(root.rglob("*.py")):
    parts = file.relative_to(root).with_suffix("").parts
    if parts[-1] in ("__main__", "tensorboard", "mlflow_runs", "wandb_runs") or len(parts) < 2:
        continue
    name = ".".join(parts if parts[0] == "forager" else ("forager", *parts))
    module = importlib.import_module(name.removesuffix(".__init__"))
    assert pathlib.Path(module.__file__).is_relative_to(root), module.__file__
from forager.core.methods.base import load
for place in ("summary_table", "write_report", "write_rounds_csv"):
    load(f"tools.report:{place}")
load("tools.report.tail:RoundValues")
print("all there")
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build it in a copy of the checkout, whose name Flower accepts, beside a stray module."""
    app = tmp_path_factory.mktemp("bundle") / "app"
    skip = [".*", "runs", "records", "pictures", "*.egg-info", "__pycache__", "dist", "site"]
    shutil.copytree(ROOT, app, ignore=shutil.ignore_patterns(*skip))
    shutil.copy(ROOT / ".gitignore", app)
    env = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(app.parent / "home")}
    (app / "my_secrets.py").write_text("SIZE = 3\n")
    done = subprocess.run(
        [FLWR, "build"], cwd=app, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = app.glob("*.fab")
    return zipfile.ZipFile(file)


def test_it_holds_what_runs_and_nothing_that_lies_beside_it(bundle: zipfile.ZipFile) -> None:
    names = [name for name in bundle.namelist() if not name.startswith(".info")]
    tops = {name.partition("/")[0] for name in names}
    assert tops == {
        *("client_app", "core", "forager", "selectors", "server_app", "strategies", "tools"),
        *("LICENSE", "README.md", "pyproject.toml"),
    }
    assert {name.split("/")[1] for name in names if name.startswith("tools/")} == {
        "__init__.py",
        "report",
    }
    texts = {"core/tasks/datasets/poems.md", "tools/report/page.md"}  # all that is no module
    assert {name for name in names if "/" in name and not name.endswith(".py")} == texts
    assert Path(str(bundle.filename)).stat().st_size < 2_100_000


def test_no_module_is_taken_for_a_test(bundle: zipfile.ZipFile) -> None:
    """Flower leaves out what is called like a test."""
    folders = ("client_app", "core", "forager", "selectors", "server_app", "strategies")
    ours = {str(p.relative_to(ROOT)) for name in folders for p in (ROOT / name).rglob("*.py")}
    assert ours <= set(bundle.namelist())


def test_nothing_that_runs_is_missing(bundle: zipfile.ZipFile, tmp_path: Path) -> None:
    bundle.extractall(tmp_path)
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "all there\n", done.stderr
