import csv
import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.config import default_config, read_config
from forager.server_app.app import run_title
from forager.server_app.run_folder import RunFolder, RunFolderError, to_plain
from forager.tools.report import write_rounds_csv


def test_create_names_the_run_by_time_and_makes_the_folders(tmp_path: Path) -> None:
    first, second = RunFolder.create(tmp_path / "runs"), RunFolder.create(tmp_path / "runs")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f]{4}", first.path.name)
    assert first.path != second.path
    assert first.checkpoints.is_dir()
    assert [entry.name for entry in first.path.iterdir()] == ["checkpoints"]
    assert first.model_path == first.path / "model.safetensors"
    assert first.report_path == first.path / "report.html"


def test_an_existing_name_is_refused_but_can_be_opened(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run")
    folder.append_event({"event": "run-started"})
    with pytest.raises(RunFolderError, match=r"output-dir = .* already holds a run 'run'"):
        RunFolder.create(tmp_path, "run")
    assert RunFolder.open(folder.path).read_events() == [{"event": "run-started"}]


@pytest.mark.parametrize("name", ["a/b", "..", ".", "../x", "/", "a\0"])
def test_a_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunFolderError, match="run-name = "):
        RunFolder.create(tmp_path / "runs", name)
    assert not (tmp_path / "x").exists()


def test_open_refuses_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"path = .*missing.* is not a run folder"):
        RunFolder.open(tmp_path / "missing")


def test_an_output_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match=r"output-dir = .*file' cannot be written: Not a dir"):
        RunFolder.create(tmp_path / "file")


def test_a_folder_that_takes_no_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(RunFolderError, match="cannot be written: No space left on device"):
        RunFolder.create(tmp_path)


def test_config_is_written_whole_and_read_back(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    assert folder.read_config() == {}
    folder.write_config({"rounds": np.int64(3), "rate": float("nan"), "overrides": {"seed": 1}})
    assert folder.read_config() == {"rounds": 3, "rate": None, "overrides": {"seed": 1}}
    folder.config_path.write_text("{")
    with pytest.raises(RunFolderError, match=r"config\.json is not a JSON file"):
        folder.read_config()


def test_a_failed_write_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path)
    folder.write_config({"rounds": 1})

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        folder.write_config({"rounds": 2})
    assert folder.read_config() == {"rounds": 1}
    assert sorted(entry.name for entry in folder.path.iterdir()) == ["checkpoints", "config.json"]


def test_events_are_compact_lines_that_any_json_reader_takes(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    event: dict[Any, Any] = {
        "event": "selected",
        "scores": np.array([[0.5, np.inf]], dtype=np.float32),
        "loss": np.float64("nan"),
        "ok": np.bool_(True),
        "chosen": ("a\nb", "\udcff"),
        np.int64(7): Path("x"),
    }
    assert folder.append_event(event)
    assert folder.append_event({"event": "checkpoint"})
    lines = folder.events_path.read_text().splitlines()
    assert len(lines) == 2
    assert " " not in lines[0]
    assert json.loads(lines[0], parse_constant=pytest.fail) == {
        "event": "selected",
        "scores": [[0.5, None]],
        "loss": None,
        "ok": True,
        "chosen": ["a\nb", "\udcff"],
        "7": "x",
    }


def test_plain_values_keep_their_types() -> None:
    assert to_plain([True, 1, 1.5, "x", None]) == [True, 1, 1.5, "x", None]
    assert to_plain({"b", "a"}) == ["a", "b"]
    assert to_plain(-np.inf) is None
    assert isinstance(to_plain(np.float32(0.5)), float)


@pytest.mark.parametrize("tail", ['{"event":"b"', '{"event":"b","x":"\\u00', "[1", "x"])
def test_a_torn_last_line_is_left_out_and_not_joined(tmp_path: Path, tail: str) -> None:
    folder = RunFolder.create(tmp_path)
    folder.append_event({"event": "a"})
    with folder.events_path.open("a") as file:
        file.write(tail)
    assert folder.read_events() == [{"event": "a"}]
    folder.append_event({"event": "c"})
    assert folder.read_events() == [{"event": "a"}, {"event": "c"}]


def test_a_whole_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    folder.events_path.write_text('{"event":"a"}')
    folder.append_event({"event": "b"})
    assert folder.read_events() == [{"event": "a"}, {"event": "b"}]


def test_a_spoilt_line_in_the_middle_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder.create(tmp_path)
    folder.events_path.write_bytes(b'{"event":"a"}\n\x00\xff\n{"event":"b"}\n')
    assert folder.read_events() == [{"event": "a"}, {"event": "b"}]
    assert "line 2" in caplog.text


def test_no_log_means_no_events(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).read_events() == []


def test_sigkill_loses_at_most_the_last_line(tmp_path: Path) -> None:
    program = (
        "import sys, itertools\n"
        "from forager.server_app.run_folder import RunFolder\n"
        "folder = RunFolder.create(sys.argv[1], 'run')\n"
        "for n in itertools.count():\n"
        "    folder.append_event({'event': 'x', 'n': n})\n"
        "    print(n, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = 50 + len(process.stdout.read().splitlines())
    numbers = [event["n"] for event in RunFolder(tmp_path / "run").read_events()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= told - 1


def test_a_full_disk_warns_once_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder.create(tmp_path)
    folder.events_path.symlink_to("/dev/full")
    with caplog.at_level(logging.WARNING):
        assert not folder.append_event({"event": "a"})
        assert not folder.append_event({"event": "b"})
    assert len(caplog.records) == 1
    assert "events are being lost" in caplog.text
    folder.events_path.unlink()
    assert folder.append_event({"event": "c"})
    assert folder.read_events() == [{"event": "c"}]


def test_a_line_cut_by_a_full_disk_does_not_spoil_the_next(tmp_path: Path) -> None:
    program = (
        "import sys, resource\n"
        "from forager.server_app.run_folder import RunFolder\n"
        "folder = RunFolder.create(sys.argv[1], 'run')\n"
        "folder.append_event({'event': 'a'})\n"
        "whole = folder.events_path.stat().st_size\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 10, hard))\n"
        "assert not folder.append_event({'event': 'b', 'text': 'x' * 100})\n"
        "assert folder.events_path.stat().st_size == whole + 10\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "assert folder.append_event({'event': 'c'})\n"
    )
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", program, str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    assert (tmp_path / "run" / "events.jsonl").read_text() == '{"event":"a"}\n{"event":"c"}\n'


def test_truncating_leaves_a_log_that_reads_as_one(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    events: list[dict[str, Any]] = [
        {"event": "run-started"},
        {"event": "evaluated", "round": 0},
        {"event": "round-finished", "round": 1},
        {"event": "note"},
        {"event": "round-finished", "round": 2},
        {"event": "checkpoint", "round": 2},
        {"event": "round-finished", "round": 3},
        {"event": "note"},
        {"event": "run-finished", "rounds": 3},
    ]
    for event in events:
        folder.append_event(event)
    folder.truncate_after(3)
    assert folder.read_events() == events[:-1]
    folder.truncate_after(2)
    assert folder.read_events() == events[:6]
    folder.append_event({"event": "round-finished", "round": 3})
    assert folder.read_events()[-1] == {"event": "round-finished", "round": 3}
    folder.truncate_after(0)
    assert folder.read_events() == events[:2]


def test_truncating_drops_the_end_of_a_run_that_stopped_at_the_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    folder.append_event({"event": "checkpoint", "round": 5})
    folder.append_event({"event": "run-finished", "reason": "interrupted"})
    folder.truncate_after(5)
    assert folder.read_events() == [{"event": "checkpoint", "round": 5}]


def test_rounds_csv_holds_what_is_known(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    exchange = {"event": "exchange", "round": 1}
    traffic = {"bytes-down": 100, "bytes-up": 10}
    on_clients = {"accuracy-mean": 0.4, "accuracy-worst-10": 0.1, "accuracy-best-10": 0.9}
    events = [
        {"event": "evaluated", "round": 0, "where": "server", "accuracy": 0.1, "loss": None},
        {**exchange, "kind": "query.proxy", "received": 9, "failed": {"z": "?"}, **traffic},
        {"event": "selected", "round": 1, "phase": "train", "chosen": ["a", "b"], "seconds": 0.5},
        {"event": "selected", "round": 1, "phase": "train", "chosen": ["b", "c"], "seconds": 0.25},
        {"event": "selected", "round": 1, "phase": "evaluate", "chosen": ["d"], "seconds": 0.25},
        {
            **exchange,
            "kind": "train",
            "received": 1,
            "failed": {"a": "x"},
            "late": ["b"],
            **traffic,
        },
        {**exchange, "kind": "evaluate", "received": 1, "failed": {"d": "x"}, **traffic},
        {"event": "quarantined", "round": 1, "client": "c", "reason": "NaN"},
        {"event": "uplink", "round": 1, "bytes-sparse": 6, "bytes-dense": 60},
        {"event": "aggregated", "round": 1, "metrics": {"train-loss": 1.5}},
        {"event": "evaluated", "round": 1, "where": "clients", **on_clients},
        {"event": "unheard-of", "round": 1, "accuracy": 0.99},
        {"event": "round-finished", "round": 1, "seconds": 2.0},
    ]
    for event in events:
        folder.append_event(event)
    path = write_rounds_csv(folder)
    with path.open(newline="") as file:
        before, first = csv.DictReader(file)
    assert list(before)[:4] == ["round", "seconds", "select-seconds", "chosen"]
    assert {key: value for key, value in before.items() if value} == {
        "round": "0",
        "accuracy": "0.1",
    }
    assert first == {
        "round": "1",
        "seconds": "2.0",
        "select-seconds": "1.0",
        "chosen": "3",
        "received": "1",
        "failed": "1",
        "late": "1",
        "quarantined": "1",
        "bytes-down": "100",
        "bytes-up": "10",
        "bytes-up-dense": "64",
        "bytes-select": "110",
        "bytes-test": "110",
        "train-loss": "1.5",
        "accuracy": "",
        "loss": "",
        "clients-accuracy-mean": "0.4",
        "clients-accuracy-worst-10": "0.1",
        "clients-accuracy-best-10": "0.9",
        "clients-accuracy-variance": "",
        "epsilon": "",
    }


def test_the_title_names_the_preset_what_differs_from_it_and_the_task() -> None:
    def title(**keys: str) -> str:
        return run_title(read_config({**default_config(), **keys}))

    assert title(strategy="cosage") == "cosage on digits"
    assert title(aggregator="fedyogi", uplink="top-k") == (
        "fedavg with aggregator fedyogi, uplink top-k on digits"
    )
