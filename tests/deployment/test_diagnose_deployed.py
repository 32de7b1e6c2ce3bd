"""A deployed federation is examined as any other run, and diagnosed from what it left."""

import pytest
from federation import eager_federation
from forager.server_app.run_folder import RunFolder
from forager.tools.cli.diagnose import examined
from forager.tools.diagnose.advice import diagnose
from forager.tools.flower.env import PROJECT
from forager.tools.flower.run import wait_for_end

pytestmark = pytest.mark.timeout(900)


def test_two_supernodes_are_examined_over_grpc(tmp_path):
    federation = eager_federation(tmp_path)
    try:
        for place in range(2):
            federation.add_supernode(f"node-{place}", f"partition-id={place} num-partitions=2")
        folder = tmp_path / "runs" / "examined"
        place = {"output-dir": str(folder.parent), "run-name": folder.name, "num-clients": 2}
        keys = examined({**place, "round.min-replies": 2, "diagnose.seconds": 600.0}, 2)
        run_id = federation.cli.submit(PROJECT, keys)
        assert wait_for_end(federation.cli, run_id, 300.0).succeeded
    finally:
        federation.stop()
    lines, page = diagnose(RunFolder.open(folder))
    assert "clients seen: 2; needed: 8" in lines["label skew"]
    assert "tuning on own data" in lines["own models"]
    assert page.exists()
