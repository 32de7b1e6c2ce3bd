"""A run folder has one writer: the one that opened it last."""

import pytest
from forager.core.config import default_config
from forager.server_app.app import build_loop
from forager.server_app.retries import RunFailed
from forager.server_app.run_folder import LeaseLost, RunFolder
from forager.tools.engine.local_grid import LocalGrid

SMALL = {"num-clients": 3, "num-server-rounds": 3, "report": False}


def loop(tmp_path, **more):
    config = {**default_config(), **SMALL, "output-dir": str(tmp_path), **more}
    return build_loop(LocalGrid(3, config), config)


def test_an_old_process_stops_when_its_run_has_gone_on_elsewhere(tmp_path) -> None:
    folder, old = loop(tmp_path)
    old.play_round()
    _, new = loop(tmp_path, **{"resume-from": str(folder.path)})
    new.run()
    model, events = folder.model_path.read_bytes(), folder.events_path.read_bytes()
    with pytest.raises(LeaseLost):
        old.run()
    assert folder.model_path.read_bytes() == model
    assert folder.events_path.read_bytes() == events


def test_a_reader_does_not_take_the_lease(tmp_path) -> None:
    folder, first = loop(tmp_path)
    RunFolder.open(folder.path).write_text("report.html", "read again")
    assert first.run() == "completed"


def test_a_run_whose_model_cannot_be_written_fails(tmp_path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    _, run = loop(tmp_path)
    monkeypatch.setattr("forager.server_app.callbacks.best_model.write_atomically", full)
    with pytest.raises(RunFailed, match=r"could not write model\.safetensors"):
        run.run()


def test_a_lease_that_is_gone_is_lost(tmp_path) -> None:
    folder, run = loop(tmp_path)
    run.play_round()
    (folder.path / ".lease").unlink()
    with pytest.raises(LeaseLost):
        run.play_round()
