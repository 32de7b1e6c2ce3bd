"""Code of the user's own has to travel with the app that Flower packs."""

import shutil
import sys
from pathlib import Path

import pytest
from forager.core.config import ConfigError
from forager.tools.flower.env import PROJECT
from forager.tools.flower.plan import plan


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def refused(app: Path, model: str) -> str:
    with pytest.raises((ConfigError, ValueError)) as caught:
        plan({"task": "blobs", "model": model}, app)
    return str(caught.value)


def test_a_module_beside_the_settings_travels(app: Path) -> None:
    (app / "beside.py").write_text("def build(shape, outputs):\n    raise ValueError('mine')\n")
    assert "mine" in refused(app, "beside:build")  # it was called, so it was let through


def test_a_folder_beside_the_settings_travels_too(app: Path) -> None:
    (app / "infolder").mkdir()
    (app / "infolder" / "__init__.py").write_text("def build(*_):\n    raise ValueError('mine')\n")
    assert "mine" in refused(app, "infolder:build")
    sys.modules.pop("infolder", None)


@pytest.mark.parametrize("key", ["task", "model", "optimiser.name", "callbacks"])
def test_a_module_elsewhere_does_not(
    app: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "faraway.py").touch()
    monkeypatch.syspath_prepend(elsewhere)
    with pytest.raises(ConfigError) as caught:
        plan({"task": "blobs", key: "faraway:build"}, app)
    assert f"{key} = 'faraway:build'" in str(caught.value)
    assert "is not sent to clients with the app" in str(caught.value)


def test_a_copy_beside_the_settings_is_what_clients_get(
    app: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path_factory.mktemp("here")
    text = "def build(shape, outputs):\n    raise ValueError('mine')\n"
    for folder in (here, app):
        (folder / "notes.py").write_text(text)
    monkeypatch.syspath_prepend(here)
    assert "mine" in refused(app, "notes:build")  # it was called, so it was let through
    (app / "notes.py").write_text(f"{text}# older")
    said = refused(app, "notes:build")
    assert str(here / "notes.py") in said
    assert str(app / "notes.py") in said
    assert "Make them the same, or remove one" in said
