"""A run whose clients Flower simulates on a Ray cluster of two nodes, both on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from forager.tools.cli.app import main as forager
from forager.tools.flower.plan import plan
from ray._private import state
from ray.cluster_utils import Cluster

pytestmark = pytest.mark.timeout(900)

RUN = "num-clients=4 client-selector='all' num-server-rounds=2 report=false"


@pytest.fixture
def address() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        cluster = Cluster()
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False)
        yield cluster.address
        cluster.shutdown()


def nodes_of_actors(address: str) -> set[str]:
    """Return the nodes on which clients were simulated."""
    ray.init(address=address, log_to_driver=False, configure_logging=False)
    try:
        return {actor["Address"]["NodeID"] for actor in state.actors().values()}
    finally:
        ray.shutdown()


def test_clients_are_simulated_on_both_nodes(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # Other tests look for what runs leave behind in the usual place.
    monkeypatch.setattr("forager.tools.flower.env.FLOWER_HOME", tmp_path / "home")
    code = forager(["run", "--cluster", address, "-c", f"{RUN} output-dir='{tmp_path}'"])
    said = capfd.readouterr().out
    assert code == 0, said
    assert f"4 simulated clients on the Ray cluster {address}" in said
    assert "round 2/2" in said
    assert len(nodes_of_actors(address)) == 2


def test_a_cluster_decides_itself_how_many_cores_it_has(address: str) -> None:
    assert "init-args-num-cpus" in plan({}).federation
    assert "init-args-num-cpus" not in plan({}, cluster=address).federation


@pytest.mark.parametrize("wrong", ["127.0.0.1:1", "nowhere", "127.0.0.1:x", ":99999"])
def test_an_address_that_nobody_answers_at_is_named(
    wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert forager(["run", "--cluster", wrong, "-c", RUN]) == 2
    assert f"--cluster {wrong!r} cannot be reached" in capfd.readouterr().err
