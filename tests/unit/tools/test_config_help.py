"""What lists the keys: two files and a command, all made from the declarations."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.common.config import flatten_dict
from forager.core.config import ConfigError, default_config
from forager.core.methods.catalogue import all_methods, all_settings
from forager.tools import config_help as help

ROOT = Path(__file__).resolve().parents[3]
NEWER = "run: python -m forager.tools.config_help --write"


def test_pyproject_holds_the_table_of_defaults() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert text.count("[tool.flwr.app.config]") == 1
    assert help.toml() in text, NEWER


def test_the_table_is_what_a_run_starts_from() -> None:
    table = tomllib.loads(help.toml())["tool"]["flwr"]["app"]["config"]
    assert dict(flatten_dict(table)) == default_config()


def test_the_page_of_keys_is_up_to_date() -> None:
    assert (ROOT / "docs" / "keys.md").read_text(encoding="utf-8") == help.page(), NEWER


def test_the_page_names_every_key_and_every_method() -> None:
    page = help.page()
    for key in default_config():
        assert f"| `{key}` |" in page
    for method in all_methods():
        assert f"| `{method.name}` | {method.about}" in page
        assert method.paper in page


def test_no_key_and_no_section_goes_without_an_explanation() -> None:
    for name in ("", *help.sections()):
        for key in help.keys_of(name):
            assert key.meaning, key.key
    for name in help.sections():
        assert help.about(name).endswith("."), name
    assert {kind.section for kind in all_settings()} <= set(help.sections())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what is written, as it is."""
    (tmp_path / "docs").mkdir()
    for name in ("pyproject.toml", "docs/keys.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    help.write(tmp_path)
    return tmp_path


def test_what_is_up_to_date_stays_as_it_is(project: Path) -> None:
    pyproject, keys = project / "pyproject.toml", project / "docs" / "keys.md"
    before = pyproject.read_text(), keys.read_text()
    assert help.write(project) == []
    assert (pyproject.read_text(), keys.read_text()) == before


def test_only_the_table_is_written_anew(project: Path) -> None:
    pyproject, keys = project / "pyproject.toml", project / "docs" / "keys.md"
    good = pyproject.read_text()
    pyproject.write_text(
        good.replace("seed = 0", "seed = 3").replace("[tool.flwr.app.config.net]", "[old]")
    )
    keys.unlink()
    assert help.write(project) == [pyproject, keys]
    written = tomllib.loads(pyproject.read_text())
    assert written["tool"]["flwr"]["app"] == tomllib.loads(good)["tool"]["flwr"]["app"]
    for table in ("build-system", "project"):
        assert written[table] == tomllib.loads(good)[table]
    assert list(written["tool"]) == list(tomllib.loads(good)["tool"])
    assert keys.read_text() == help.page()


def test_an_unknown_section_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"section 'cosag': unknown; there are.*'cosage'\?"):
        help.keys_of("cosag")
    with pytest.raises(ConfigError, match="unknown"):
        help.keys_of("seed")


def test_an_axis_lists_its_methods() -> None:
    (uplink,) = [key for key in help.keys_of("") if key.key == "uplink"]
    assert (uplink.default, uplink.allowed) == ("''", "dense, top-k, top-k-plain, compact, int8")


def test_it_runs_as_a_command(project: Path) -> None:
    def run() -> str:
        command = [sys.executable, "-m", "forager.tools.config_help", "--write"]
        return subprocess.run(
            command, cwd=project, check=True, capture_output=True, text=True
        ).stdout

    assert run() == ""
    (project / "docs" / "keys.md").write_text("old")
    assert run() == "keys.md is new\n"
