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


def test_the_install_page_names_the_pythons_of_the_metadata() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    pythons = [each.split(" :: ")[-1] for each in named if "Python :: 3." in each]
    assert pythons == ["3.11", "3.12", "3.13"]
    page = (ROOT / "docs" / "install.md").read_text()
    assert f"runs on Python {pythons[0]}" in page
    assert f"also ran on {' and '.join(pythons[1:])}," in page
