from __future__ import annotations

import os
from pathlib import Path

import pytest
from forager.tools.experiments.records import (
    Cell,
    Scalar,
    SweepError,
    SweepFile,
    parse,
    read_records,
)
from forager.tools.experiments.results import Results
from forager.tools.experiments.sweep import sweep

CELLS = [Cell("avg", {"strategy": "avg"}), Cell("prox", {"strategy": "prox", "offset": 0.05})]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one line per run that really took place."""
    path = tmp_path / "calls"
    path.touch()
    monkeypatch.setenv("FAKE_CALLS", str(path))
    return path


def taken(calls: Path) -> list[str]:
    lines = sorted(calls.read_text().splitlines())
    calls.write_text("")
    return lines


def run(path: Path, cells: list[Cell], seeds: list[int], runner: str = "counted") -> Results:
    return sweep("test", cells, seeds, path=path, processes=2, runner=f"fake_runners:{runner}")


def test_runs_every_cell_with_every_seed(tmp_path: Path, calls: Path) -> None:
    results = run(tmp_path / "s.jsonl", CELLS, [4, 2])
    assert taken(calls) == ["avg 2", "avg 4", "prox 2", "prox 4"]
    assert results.cells == ["avg", "prox"]
    assert list(results.runs["prox"]) == [2, 4]
    assert results.runs["prox"][4].rows[0]["accuracy"] == pytest.approx(0.1 + 0.04 + 0.05)
    assert results.failures == []


def test_runs_at_the_same_time_on_one_thread_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "meeting"
    place.mkdir()
    monkeypatch.setenv("FAKE_MEETING", str(place))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    results = run(tmp_path / "s.jsonl", CELLS[:1], [0, 1], "meeting")
    rows = [record.rows[-1] for record in results.runs["avg"].values()]
    assert len({row["pid"] for row in rows} | {os.getpid()}) == 3
    assert [row["threads"] for row in rows] == ["1", "1"]
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_resumes_after_a_torn_line(tmp_path: Path, calls: Path) -> None:
    path = tmp_path / "s.jsonl"
    run(path, CELLS, [0, 1])
    taken(calls)
    whole = path.read_bytes()
    torn = read_records(path)[-1]
    path.write_bytes(whole[:-20])
    assert len(read_records(path)) == 3
    results = run(path, CELLS, [0, 1])
    assert taken(calls) == [f"{torn.cell} {torn.seed}"]
    assert results.runs[torn.cell][torn.seed].rows[0] == torn.rows[0]
    assert path.read_bytes().startswith(whole[: whole.rindex(b'{"cell"')])
    assert len(read_records(path)) == 4


def test_a_file_cut_anywhere_is_still_a_sweep_file(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    run(path, CELLS[:1], [0, 1], "steady")
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    for cut in range(len(data)):
        records, size = parse(data[:cut], "cut")
        assert (len(records), size) == ((0, 0) if cut < first else (1, first))


def test_finished_runs_are_not_repeated_and_more_seeds_are_added(
    tmp_path: Path, calls: Path
) -> None:
    path = tmp_path / "s.jsonl"
    run(path, CELLS[:1], [0, 1])
    taken(calls)
    assert list(run(path, CELLS[:1], [0, 1]).runs["avg"]) == [0, 1]
    assert taken(calls) == []
    run(path, CELLS[:1], [0, 1, 2])
    assert taken(calls) == ["avg 2"]
    assert list(run(path, CELLS[:1], [2]).runs["avg"]) == [2]


@pytest.mark.parametrize(
    ("mood", "error"),
    [
        ("raises", "RuntimeError: no clients left"),
        ("exits", "SystemExit: 3"),
        ("dies", "out of memory\nthe worker process died with exit code 7"),
        ("aborts", "the run ended with reason 'too-few-replies'"),
        ("unstorable", "which is not a number or a text"),
    ],
)
def test_a_failed_run_is_noted_and_the_sweep_goes_on(tmp_path: Path, mood: str, error: str) -> None:
    cells = [Cell("bad", {"mood": mood}), Cell("good", {"mood": "well"})]
    path = tmp_path / "s.jsonl"
    results = sweep("t", cells, [0, 1], path=path, processes=1, runner="fake_runners:moody")
    assert list(results.runs["good"]) == [0, 1]
    assert results.runs["bad"] == {}
    assert [failure.seed for failure in results.failures] == [0, 1]
    assert error in results.failures[0].error
    assert [record.status for record in read_records(path)].count("failed") == 2


def test_failed_runs_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MARKER", str(tmp_path / "marker"))
    path = tmp_path / "s.jsonl"
    cells = [Cell("moody", {"mood": "raises-once"})]
    first = run(path, cells, [0], "moody")
    assert (list(first.runs["moody"]), len(first.failures)) == ([], 1)
    second = run(path, cells, [0], "moody")
    assert (list(second.runs["moody"]), second.failures) == ([0], [])
    assert [record.status for record in read_records(path)] == ["failed", "completed"]


def test_a_changed_config_is_run_anew(tmp_path: Path, calls: Path) -> None:
    path = tmp_path / "s.jsonl"
    old, new = (Cell("avg", {"strategy": "avg", "offset": offset}) for offset in (0.0, 0.5))
    run(path, [old], [0])
    run(path, [new], [0])
    assert taken(calls) == ["avg 0", "avg 0"]
    assert Results.load(path).runs["avg"][0].config["offset"] == 0.5
    assert Results.load(path, [old]).runs["avg"][0].config["offset"] == 0.0
    assert run(path, [old], [0]).runs["avg"][0].config["offset"] == 0.0
    assert taken(calls) == []


def test_digest_follows_keys_and_values_only() -> None:
    digest = Cell("a", {"x": 1, "y": 2}).digest
    assert Cell("b", {"y": 2, "x": 1}).digest == digest
    others: list[dict[str, Scalar]] = [
        {"x": 1, "y": 3},
        {"x": 1},
        {"x": 1.0, "y": 2},
        {"x": True, "y": 2},
        {"x": "1", "y": 2},
    ]
    assert len({digest, *(Cell("a", config).digest for config in others)}) == 6


def test_run_folders_are_removed_unless_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    cell, runner = Cell("../a b", {}), "fake_runners:steady"
    sweep("t", [cell], [0], path=tmp_path / "1.jsonl", processes=1, runner=runner)
    assert list(scratch.iterdir()) == []
    kept = tmp_path / "kept"
    sweep("t", [cell], [0], path=tmp_path / "2.jsonl", processes=1, runner=runner, keep_runs=kept)
    assert [file.relative_to(kept).parts[1:] for file in kept.rglob("model")] == [("model",)]
    assert list(scratch.iterdir()) == []


def test_file_defaults_to_the_sweeps_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep("mine", CELLS[:1], [0], processes=1, runner="fake_runners:steady")
    assert len(read_records(tmp_path / "sweeps" / "mine.jsonl")) == 1


@pytest.mark.parametrize(
    ("cells", "seeds", "processes", "message"),
    [
        ([CELLS[0], CELLS[0]], [0], 1, "cell name: 'avg' is given 2 times"),
        ([], [0], 1, "cells: .* at least one"),
        (CELLS, [], 1, "seeds: .* at least one"),
        (CELLS, [3, 3], 1, "seed: 3 is given 2 times"),
        (CELLS, [0], 0, "processes: 0 .* 1 or more"),
    ],
)
def test_refuses_an_impossible_plan(
    tmp_path: Path, cells: list[Cell], seeds: list[int], processes: int, message: str
) -> None:
    path = tmp_path / "s.jsonl"
    with pytest.raises(SweepError, match=message):
        sweep("t", cells, seeds, path=path, processes=processes, runner="fake_runners:steady")
    assert not path.exists()


@pytest.mark.parametrize(
    "runner", ["nowhere:run", "fake_runners", "fake_runners.inner:run", ":run"]
)
def test_refuses_an_unknown_runner(tmp_path: Path, runner: str) -> None:
    with pytest.raises(SweepError, match=r"runner .*module:function"):
        sweep("t", CELLS, [0], path=tmp_path / "s.jsonl", runner=runner)


def test_refuses_a_config_value_that_is_no_scalar() -> None:
    with pytest.raises(SweepError, match=r"cell 'a': 'x' is \[1\]; allowed are int"):
        Cell("a", {"x": [1]})  # type: ignore[dict-item]


@pytest.mark.parametrize("place", ["file/s.jsonl", "folder"])
def test_refuses_a_file_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(SweepError, match="cannot be written"):
        run(tmp_path / place, CELLS, [0])


@pytest.mark.parametrize(
    "content",
    ["# Notes\n", "just a word", '{"event": 1}\n', '{"event', "\n", "[1]\n", "\x00\xff\n"],
)
def test_refuses_a_file_that_is_no_sweep_file_and_leaves_it_alone(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "notes"
    path.write_text(content, newline="")
    with pytest.raises(SweepError, match=r"notes.* not a (sweep file|record of a sweep file)"):
        run(path, CELLS, [0])
    with pytest.raises(SweepError, match=r"notes"):
        Results.load(path)
    assert path.read_text() == content


def test_refuses_a_file_that_another_sweep_writes(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SweepFile(path), pytest.raises(SweepError, match="in use by another sweep"):
        run(path, CELLS, [0])


def test_refuses_to_load_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="cannot be read: No such file"):
        Results.load(tmp_path / "none.jsonl")
