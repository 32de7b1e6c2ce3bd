"""The examples run as they stand."""

import importlib
import re
import runpy
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_your_own_data(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_data" / "run.py"), run_name="__main__")
    told = dict(re.findall(r"(\w+): accuracy (\S+)", capsys.readouterr().out))
    assert set(told) == {"random", "cosage"}
    assert all(float(accuracy) > 0.8 for accuracy in told.values())


def test_your_own_selector(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_selector" / "run.py"), run_name="__main__")
    rounds = re.findall(r"round \d: clients (.*)", capsys.readouterr().out)
    chosen = [set(line.split(", ")) for line in rounds]
    assert [len(clients) for clients in chosen] == [3] * 4
    assert not any(now & before for before, now in pairwise(chosen))


def test_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(ROOT)}}).execute()
    said = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
    accuracies = re.findall(r"accuracy (\S+) after 15 rounds", said)
    assert len(accuracies) == 2
    assert all(float(accuracy) > 0.5 for accuracy in accuracies)


def test_a_language_model_is_tuned_and_little_of_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("lora_text")
    module.main(rounds=3)
    told = capsys.readouterr().out
    found = re.findall(r"([\w-]+): perplexity (\S+) -> (\S+)", told)
    assert [name for name, _, _ in found] == list(module.WAYS)
    assert all(float(last) < float(first) for _, first, last in found)
    sent, stay = re.search(r"([\d,]+) numbers are sent beside ([\d,]+)", told).groups()
    assert int(sent.replace(",", "")) < int(stay.replace(",", "")) / 3
