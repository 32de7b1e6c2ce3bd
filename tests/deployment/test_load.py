"""Clients in numbers against a real SuperLink and ServerApp: nothing is lost."""

import pytest
from forager.benchmarks.load import COLUMNS, run_under_load
from forager.server_app.run_folder import RunFolder

pytestmark = pytest.mark.timeout(900)


def test_ten_clients_lose_nothing_and_the_second_model_comes_as_a_change(tmp_path):
    config = {"downlink": "changes", "model": "mlp"}
    load = run_under_load(tmp_path, clients=10, rounds=2, idle=0.2, config=config)
    assert (load.lost, load.failed) == (0, {})
    assert load.sent == 10 * 3, "who they are, and two rounds"
    assert len(load.seconds) == 2
    assert all(taken.memory > 0 and taken.cpu > 0 for taken in load.taken.values()), load.taken
    assert len(load.row()) == len(COLUMNS)
    log = RunFolder.open(tmp_path / "runs" / "load").read_events()
    first, second = (e for e in log if e["event"] == "exchange" and e["kind"] == "train")
    assert second["bytes-down"] < 0.8 * first["bytes-down"]
    assert (first["bytes-spared"], second["resent"]) == (0, 0)
    assert second["bytes-spared"] > 0
