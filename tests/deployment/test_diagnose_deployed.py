"""A deployed federation is examined as any other run, and diagnosed from what it left."""

import pytest
from federation import eager_federation
from forager.server_app.run_folder import RunFolder
from forager.tools.cli.diagnose import examined
from forager.tools.diagnose.page import diagnose
from forager.tools.flower.env import PROJECT
from forager.tools.flower.run import wait_for_end

pytestmark = pytest.mark.timeout(900)


def test_two_supernodes_are_examined_over_grpc(tmp_path):
    federation = eager_federation(tmp_path)
    try:
        nodes = {}
        for place in range(2):
            state = tmp_path / f"state-{place}"  # so that it keeps a process for all messages
            node = f"partition-id={place} num-partitions=2 client-id='{place}'"
            nodes[f"node-{place}"] = f"{node} state-dir='{state}'"
        federation.add_supernodes(nodes)
        folder = tmp_path / "runs" / "examined"
        keep = {"output-dir": str(folder.parent), "run-name": folder.name, "num-clients": 2}
        keys = examined({**keep, "round.min-replies": 2, "diagnose.seconds": 600.0}, 2)
        run_id = federation.cli.submit(PROJECT, keys)
        log = "\n".join(federation.cli.log(run_id))
        assert wait_for_end(federation.cli, run_id).succeeded, log
    finally:
        federation.stop()
    lines, page = diagnose(RunFolder.open(folder))
    assert "clients seen: 2; needed: 8" in lines["label skew"]
    assert "tuning on own data" in lines["own models"]
    assert page.exists()
