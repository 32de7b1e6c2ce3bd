"""CONTRIBUTING's examples, followed to the letter in a copy of the project."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("forager", "server_app", "client_app", "strategies", "selectors", "core", "tools")
ENGINE = "forager run --local "
# All commands in one process: what takes time is the start of Python with PyTorch and Flower.
RUNS = """
import json, sys
from forager.tools.cli.app import main

for title, words in json.load(sys.stdin).items():
    print("begins:", title, file=sys.stderr, flush=True)
    if main(["run", "--local", *words]):
        sys.exit(f"{title} failed")
"""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def recipes() -> dict[str, tuple[dict[str, str], str]]:
    """Return, by title, the files of each example and the command that runs it."""
    found = {}
    for section in (ROOT / "CONTRIBUTING.md").read_text().split("\n### ")[1:]:
        title, _, body = section.partition("\n")
        blocks = BLOCK.findall(body)
        files = {code.partition("\n")[0].removeprefix("# "): code for kind, code in blocks if kind}
        commands = [code.strip() for kind, code in blocks if not kind]
        if files:
            found[title] = files, commands[0]
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_there_is_an_example_of_each_kind() -> None:
    titles = ["A client selector", "A data selector", "A similarity", "A cohort rule"]
    assert list(recipes()) == titles


def test_the_examples_run_as_they_stand(project: Path) -> None:
    commands = {}
    for title, (files, command) in recipes().items():
        for name, code in files.items():
            (project / name).write_text(code)
        assert command.startswith(ENGINE)
        commands[title] = shlex.split(command.removeprefix(ENGINE))
    result = subprocess.run(
        [sys.executable, "-c", RUNS],
        input=json.dumps(commands),
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    for said in result.stderr.split("begins: ")[1:]:
        assert "round 2/2" in said, result.stderr
        assert "not used" not in said, result.stderr
    assert result.stderr.count("begins: ") == len(commands)
