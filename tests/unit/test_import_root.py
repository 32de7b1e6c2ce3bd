"""The folder ``selectors`` must not hide the standard library's module of that name."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = "import subprocess, asyncio, selectors; print(selectors.DefaultSelector.__name__)"


def output(code: str, cwd: Path, *path: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={"PYTHONPATH": ":".join(map(str, path)), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    "path",
    [(), (ROOT,), (ROOT, ROOT / "selectors"), (ROOT / "selectors",)],
    ids=["cwd", "root", "root and selectors", "selectors"],
)
def test_the_standard_library_works_from_the_root(path: tuple[Path, ...]) -> None:
    assert output(IMPORTS, ROOT, *path).endswith("Selector")


def test_selectors_is_a_folder_and_no_package() -> None:
    assert (ROOT / "selectors").is_dir()
    assert not (ROOT / "selectors" / "__init__.py").exists()


def test_a_bundle_finds_what_lies_below_selectors(tmp_path: Path) -> None:
    """Inside a Flower bundle only the root is on the path."""
    code = "import forager.selectors.client_selectors.base as b; print(b.__file__)"
    assert output(code, tmp_path, ROOT) == str(ROOT / "selectors/client_selectors/base.py")
    assert output(f"import forager.core; {IMPORTS}", tmp_path, ROOT).endswith("Selector")


def test_no_source_file_imports_selectors_as_a_package() -> None:
    for folder in ("server_app", "client_app", "strategies", "selectors", "core", "tools"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text()
            assert "from selectors." not in text, file
            assert "import selectors." not in text, file


# Flower's simulation looks for the ClientApp while another thread imports the ServerApp. The second
# of the two must wait until the package knows where its folders are, here half a second.
RACE = """
import threading, pathlib, time
from flwr.supercore.object_ref import load_app, validate

plain = pathlib.Path.is_dir
pathlib.Path.is_dir = lambda path: time.sleep(0.5) or plain(path)
loaded = []
other = threading.Thread(target=lambda: loaded.append(load_app({other!r}, ValueError, {root!r})))
other.start()
time.sleep(0.2)
valid = validate({mine!r}, project_dir={root!r})
mine = load_app({mine!r}, ValueError, {root!r})
other.join()
print(valid, type(mine).__name__, type(loaded[0]).__name__)
"""


@pytest.mark.parametrize("first", ["serverapp", "clientapp"])
def test_both_apps_are_found_while_the_package_is_being_imported(
    tmp_path: Path, first: str
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    apps = project["tool"]["flwr"]["app"]["components"]
    (second,) = apps.keys() - {first}
    code = RACE.format(other=apps[first], mine=apps[second], root=str(ROOT))
    kinds = {"serverapp": "ServerApp", "clientapp": "ClientApp"}
    assert output(code, tmp_path) == f"(True, None) {kinds[second]} {kinds[first]}"
