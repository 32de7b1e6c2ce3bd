"""docs/your-own-task.md, followed to the letter."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from forager.client_app.app import answer_one
from forager.core.config import default_config, read_config
from forager.core.config.overrides import parse_overrides
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import from_record, to_record
from forager.tools.cli.app import main
from own_task_page import COMMANDS, command, prepare


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's programs, and a CSV file as the page describes it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in prepare(tmp_path):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_the_same_files_are_compared_run_and_put_on_devices(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "forager.tools.experiments.compare.command.render", lambda found: ""
    )  # drawing has its own tests
    assert main(["compare", *command("forager", "compare"), "--processes", "1"]) == 0
    assert list((place / "comparisons" / "npz").glob("compare-*.json"))
    assert "Run fedavg" in capsys.readouterr().out

    assert main(["run", *command("forager", "run")]) == 0
    accuracy = re.search(r"final accuracy +([0-9.]+) %", capsys.readouterr().out)
    assert accuracy
    assert float(accuracy[1]) > 85

    run = parse_overrides(command("flwr", "run", ".", "mine", "--stream", "-c"))
    settings = {**default_config(), **run, "data.path": "mine.npz"}
    for site in ("site-1", "site-8"):
        assert trained_on_device(settings, f"devices/{site}.npz")


def trained_on_device(settings: dict[str, object], data_path: str) -> bool:
    """Let one device answer one round of training; tell whether its model changed."""
    model = load_task(read_config(settings).task_spec()).build_model()
    before = read_arrays(model)
    node = {"client-id": "site", "data-path": data_path}
    context = Context(1, 2, node_config=node, state=RecordDict(), run_config=settings)
    content = RecordDict({"arrays": to_record(before), "config": ConfigRecord({"server-round": 1})})
    message = Message(content, dst_node_id=2, message_type="train")
    reply = answer_one(message, context)
    assert not reply.has_error(), reply.error
    after = from_record(next(iter(reply.content.array_records.values()), ArrayRecord()))
    return any(not np.array_equal(before[name], after[name]) for name in before)


def test_data_from_code(place: Path) -> None:
    arguments = next(c[1:] for c in COMMANDS if "mytask:load" in " ".join(c))
    assert main(arguments) == 0
