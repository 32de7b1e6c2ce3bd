"""Clients in numbers against a real SuperLink and ServerApp: nothing is lost."""

import pytest
from forager.benchmarks.load import run_under_load
from forager.server_app.run_folder import RunFolder

pytestmark = pytest.mark.timeout(900)


def test_ten_clients_lose_nothing_and_the_second_model_comes_as_a_change(tmp_path):
    config = {"downlink": "changes", "model": "mlp"}
    load = run_under_load(tmp_path, clients=10, rounds=2, idle=0.2, config=config)
    assert (load.lost, load.failed) == (0, {})
    assert load.sent == 10 * 3, "who they are, and two rounds"
    assert load.rounds == 2
    assert all(size > 0 for size in load.memory.values()), load.memory
    log = RunFolder.open(tmp_path / "runs" / "load").read_events()
    first, second = (e for e in log if e["event"] == "exchange" and e["kind"] == "train")
    assert second["bytes-down"] < 0.8 * first["bytes-down"]
    assert (first["bytes-spared"], second["resent"]) == (0, 0)
    assert second["bytes-spared"] > 0
