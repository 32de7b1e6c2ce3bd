"""A run's folder may be damaged or forged: every command that reads one says so in a sentence."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forager.core.config import ConfigError
from forager.core.storage import tree
from forager.core.tasks import TaskError
from forager.server_app.callbacks.checkpoint import CheckpointError
from forager.server_app.retries import RunFailed
from forager.server_app.run_folder import RunFolder, RunFolderError
from forager.tools.cli.app import main
from forager.tools.engine.local import run_local
from forager.tools.predict import load_model, task_of_run
from forager.tools.report import summary_table, write_report, write_rounds_csv
from fuzzing import fuzz, spoilt
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = {"task": "blobs", "num-clients": 4, "num-server-rounds": 2, "report": False}
IN_WORDS = (ConfigError, TaskError, RunFolderError, CheckpointError)

values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**20), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a finished run, which tests may spoil after they have kept what they change."""
    return run_local(
        {**KEYS, "strategy": "cosage", "output-dir": str(tmp_path_factory.mktemp("f"))}
    ).folder


def in_words(what: Callable[..., object], *arguments: Any) -> None:
    """Call something that may refuse its input, but raise nothing else."""
    with suppress(*IN_WORDS):
        what(*arguments)


def test_a_damaged_model_is_refused(run: Path) -> None:
    honest = (run / "model.safetensors").read_bytes()

    @fuzz
    @given(spoilt(st.just(honest)))
    def try_one(data: bytes) -> None:
        (run / "model.safetensors").write_bytes(data)
        in_words(load_model, run, (2,))

    try_one()
    for data in (b"", honest[:100], b"\xff" * 50):
        (run / "model.safetensors").write_bytes(data)
        with pytest.raises(RunFolderError, match=r"model\.safetensors is damaged"):
            load_model(run, (2,))
    (run / "model.safetensors").write_bytes(honest)


def test_any_config_is_read_or_refused(run: Path) -> None:
    honest = (run / "config.json").read_bytes()
    saved = json.loads(honest)

    @fuzz
    @given(st.one_of(values, st.dictionaries(st.sampled_from(sorted(saved)), values, max_size=3)))
    def try_one(changed: Any) -> None:
        config = {**saved, **changed} if isinstance(changed, dict) else changed
        (run / "config.json").write_text(json.dumps(config))
        in_words(task_of_run, run)

    @settings(fuzz, max_examples=20)
    @given(values)
    def report_one(changed: Any) -> None:
        (run / "config.json").write_text(json.dumps({**saved, "task": changed, "seed": changed}))
        in_words(write_report, RunFolder(run))

    try_one()
    report_one()
    for data in (b"", b"\xff\xfe", b"[" * 100_000, honest[:-9]):
        (run / "config.json").write_bytes(data)
        with pytest.raises(RunFolderError, match=r"config\.json"):
            load_model(run, (2,))
        assert main(["report", str(run)]) == 2
        assert main(["resume", str(run), "--local"]) == 2
    (run / "config.json").write_bytes(honest)


def test_a_log_nested_too_deeply_is_left_out(run: Path) -> None:
    honest = (run / "events.jsonl").read_bytes()
    (run / "events.jsonl").write_bytes(b"[" * 100_000 + b"\n" + honest)
    write_rounds_csv(RunFolder(run))
    assert "completed" in summary_table(RunFolder(run))
    (run / "events.jsonl").write_bytes(honest)


def nodes(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything in a tree."""
    below = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [path, *(found for key, value in below for found in nodes(value, (*path, key)))]


def replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a tree with another value in one place."""
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


def test_a_forged_checkpoint_is_refused_in_words_and_changes_nothing(
    run: Path, tmp_path: Path
) -> None:
    (file,) = (run / "checkpoints").glob("*02.safetensors")
    honest = tree.load(file, "checkpoint")
    log = (run / "events.jsonl").read_bytes()
    places = nodes(honest)
    rng = np.random.default_rng(0)
    wrong = (None, -1, "x", [], {}, 10**30, np.zeros((0, 3)), np.full(2, np.nan), True)
    folder, refusals = tmp_path / run.name, 0
    for number in range(fuzz.max_examples // 8):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        place = places[int(rng.integers(1, len(places)))]
        state = replaced(honest, place, wrong[number % len(wrong)])
        for old in (folder / "checkpoints").iterdir():
            old.unlink()
        tree.save(folder / "checkpoints" / file.name, state, "checkpoint")
        keys = {**KEYS, "strategy": "cosage", "num-server-rounds": 3, "resume-from": str(folder)}
        try:
            run_local(keys)
        except RunFailed:
            continue  # in a round that needs what was forged
        except IN_WORDS:
            refusals += 1
            assert (folder / "events.jsonl").read_bytes() == log, place
    assert refusals
