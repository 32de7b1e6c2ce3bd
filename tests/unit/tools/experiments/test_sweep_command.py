"""Benchmarks as commands: output, exit codes, Ctrl-C and kill."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from forager.benchmarks.quickstart import STRATEGIES, main
from forager.tools.experiments.progress import SweepProgress
from forager.tools.experiments.records import SweepRecord, read_records
from forager.tools.experiments.results import Results
from rich.console import Console

ROOT = Path(__file__).parents[4]


def arguments(path: Path, seeds: int) -> list[str]:
    return ["--seeds", str(seeds), "--rounds", "4", "--processes", "2", "--out", str(path)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.02)


def has_ended(pid: int) -> bool:
    """Whether a process is gone or a zombie that nobody reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_quickstart_prints_tables_and_draws_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "q.jsonl"
    assert main(arguments(path, 2), runner="fake_runners:steady") == 0
    output = capsys.readouterr()
    assert "| fedprox | 2     | 0.405 ± 0.007" in output.out
    assert "+0.000 [+0.000, +0.000], p=1.000, no difference" in output.out
    assert path.with_suffix(".svg").stat().st_size > 1000
    # Which run ends last is up to the machine.
    lines = output.err.splitlines()
    runs = sorted(line.partition("] ")[2].partition(":")[0] for line in lines)
    assert runs == sorted(f"{cell} seed {seed}" for cell in STRATEGIES for seed in (0, 1))
    assert re.fullmatch(r"\[6/6\] .*: \d+ rounds in \d+\.\d s, about 0:00:00 left", lines[-1])
    configs = {record.cell: record.config for record in read_records(path)}
    assert configs["fedyogi"] == {"task": "digits", "strategy": "fedyogi", "num-server-rounds": 4}


def test_bad_options_end_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments(tmp_path / "q.jsonl", 0), runner="fake_runners:steady")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: seeds: [] is empty; a sweep needs at least one seed\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_sweep_leaves_no_process_and_goes_on(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    pids, scratch, path = tmp_path / "pids", tmp_path / "tmp", tmp_path / "q.jsonl"
    pids.mkdir()
    scratch.mkdir()
    code = (
        f"import forager.benchmarks.quickstart as q; q.main({arguments(path, 2)!r}, runner={{!r}})"
    )
    search = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    process = subprocess.Popen(
        [sys.executable, "-c", code.format("fake_runners:endless")],
        env={**os.environ, "PYTHONPATH": search, "FAKE_PIDS": str(pids), "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
        # A shell in the background lets its children ignore Ctrl-C, and they pass it on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: len(list(pids.iterdir())) == 2)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    workers = [int(file.name) for file in pids.iterdir()]
    wait_until(lambda: all(has_ended(pid) for pid in workers))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert errors.endswith(f"stopped; the same command continues from {path}\n")
        assert "Traceback" not in errors
        assert list(scratch.iterdir()) == []
    before = path.read_bytes()
    assert {record.seed for record in read_records(path)} == {0}
    assert main(arguments(path, 2), runner="fake_runners:steady") == 0
    assert path.read_bytes().startswith(before)
    assert [len(runs) for runs in Results.load(path).runs.values()] == [2, 2, 2]


def record(seconds: float, error: str = "") -> SweepRecord:
    return SweepRecord(
        cell="a[b]",
        seed=3,
        digest="0",
        status="failed" if error else "completed",
        reason="completed",
        error=error,
        seconds=seconds,
        config={},
        rows=[],
    )


def test_time_left_counts_parallel_runs() -> None:
    progress = SweepProgress("t", 5, 2, Console(file=io.StringIO()))
    progress.advance(record(10.0))
    assert progress.time_left() == timedelta(seconds=20)
    for seconds in (20.0, 30.0, 20.0):
        progress.advance(record(seconds))
    assert progress.time_left() == timedelta(seconds=20)
    progress.advance(record(20.0))
    assert progress.time_left() == timedelta(0)


def test_a_terminal_gets_a_bar_and_only_failures_as_lines() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with SweepProgress("trial", 2, 1, console) as progress:
        progress.advance(record(1.0))
        progress.advance(record(1.0, "Traceback\nValueError: x"))
    shown = screen.getvalue()
    assert "trial" in shown
    assert "2/2" in shown
    assert "[2/2] a[b] seed 3: failed: ValueError: x" in shown
    assert "[1/2]" not in shown
