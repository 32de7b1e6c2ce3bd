"""Clients in numbers against a real SuperLink and ServerApp: nothing is lost."""

import pytest
from forager.benchmarks.load import COLUMNS, run_under_load

pytestmark = pytest.mark.timeout(900)


def test_ten_clients_lose_nothing(tmp_path):
    load = run_under_load(tmp_path, clients=10, rounds=2, idle=0.2, config={})
    assert (load.lost, load.failed) == (0, {})
    assert load.sent == 10 * 3, "who they are, and two rounds"
    assert len(load.seconds) == 2
    assert all(taken.memory > 0 and taken.cpu > 0 for taken in load.taken.values()), load.taken
    assert len(load.row()) == len(COLUMNS)
