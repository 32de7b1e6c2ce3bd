"""The badges say what the metadata say."""

import html
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_versions_and_licence_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = (ROOT / "docs" / "pictures" / "badges.svg").read_text()
    texts = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", badges)]
    (flower,) = [d for d in project["dependencies"] if re.match(r"flwr\W", d)]
    assert texts[1] == flower.removeprefix("flwr")
    assert texts[3] == project["requires-python"]
    assert f"{texts[5]} License" in (ROOT / "LICENSE").read_text()
    assert "docs/pictures/badges.svg" in (ROOT / "README.md").read_text()
