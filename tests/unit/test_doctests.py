"""Every example in a docstring runs.

``pytest --doctest-modules`` would import files by their folder, not below ``forager``.
"""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("selectors", "core", "strategies", "client_app", "server_app", "tools", "benchmarks")


def modules() -> list[str]:
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    parts = (path.relative_to(ROOT).with_suffix("").parts for path in files)
    return [".".join(p) for p in parts if p[-1] not in ("__init__", "__main__")]


@pytest.mark.parametrize(
    "module", [m for m in modules() if ">>>" in (ROOT / (m.replace(".", "/") + ".py")).read_text()]
)
def test_examples(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(import_module(f"forager.{module}"), optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed
