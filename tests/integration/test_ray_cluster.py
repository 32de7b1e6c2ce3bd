"""Runs, sweeps and comparisons on a Ray cluster of two nodes, both of them on this machine."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from forager.tools.cli.app import main as forager
from forager.tools.experiments.compare.command import Options, run_comparison
from forager.tools.experiments.records import Cell, SweepError, SweepRecord
from forager.tools.experiments.results import Results
from forager.tools.experiments.sweep import sweep
from forager.tools.flower.plan import plan
from ray._private import state
from ray.cluster_utils import Cluster

pytestmark = pytest.mark.timeout(900)

RUNNERS = Path(__file__).parents[1] / "unit/tools/experiments"
CELLS = [Cell("one", {"strategy": "fedavg"}), Cell("two", {"strategy": "cosage", "offset": 0.2})]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a cluster whose workers find the runners and a folder that they share."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("place")
        patch.setenv("FAKE_PLACE", str(place))
        patch.setenv("FAKE_CALLS", str(tmp_path_factory.mktemp("calls") / "calls"))
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patch.setattr(sys, "path", [str(RUNNERS), *sys.path])
        settings = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
        cluster = Cluster()
        cluster.add_node(**settings)
        cluster.add_node(**settings)
        yield cluster.address
        cluster.shutdown()


def run(path: Path, runner: str, cluster: str, seeds: int = 2) -> Results:
    return sweep("t", CELLS, range(seeds), path=path, runner=runner, cluster=cluster)


def records(results: Results) -> list[SweepRecord]:
    return [record for by_seed in results.runs.values() for record in by_seed.values()]


def rows(results: Results) -> list[object]:
    return [
        (record.cell, record.seed, [{**row, "pid": 0} for row in record.rows])
        for record in records(results)
    ]


def test_all_nodes_take_part(tmp_path: Path, address: str) -> None:
    results = run(tmp_path / "s.jsonl", "cluster_runners:on_a_node", address)
    assert not results.failures
    assert len({record.rows[-1]["node"] for record in records(results)}) == 2


def test_results_are_those_of_local_processes(tmp_path: Path, address: str) -> None:
    there = run(tmp_path / "there.jsonl", "fake_runners:steady", address)
    here = run(tmp_path / "here.jsonl", "fake_runners:steady", "")
    assert rows(there) == rows(here)
    assert records(there)[0].rows[-1]["threads"] == "1"


def test_a_lost_worker_costs_its_run_alone(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    path = tmp_path / "s.jsonl"

    def again() -> Results:
        return sweep("t", CELLS[:1], range(4), path=path, runner="cluster_runners:dies_once")

    first = again()
    assert [failure.seed for failure in first.failures] == [1]
    assert "lost with its worker" in first.failures[0].error
    assert sorted(record.seed for record in records(first)) == [0, 2, 3]
    second = again()
    assert not second.failures
    assert sorted(record.seed for record in records(second)) == [0, 1, 2, 3]


def test_a_comparison_runs_there_and_goes_on(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def again(out: str, cluster: str, processes: int | None = None) -> list[str]:
        options = Options(["fedavg", "fedyogi"], seeds=2, budget="30", cluster=cluster)
        options = replace(options, out=tmp_path / out, processes=processes)
        assert run_comparison(options, runner="fake_candidates:run") == 0
        said = capsys.readouterr()
        assert "Run fedyogi: it beats fedavg" in said.out
        return [line for line in said.err.splitlines() if line.startswith("[")]

    there = again("there", address)
    assert len(there) == len(again("here", "", 2))
    assert again("there", address) == []  # nothing is left to do


def test_a_sweep_names_an_address_that_nobody_answers_at(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"cluster: 'nonsense' cannot be reached"):
        run(tmp_path / "s.jsonl", "fake_runners:steady", "nonsense")


def test_ray_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SweepError, match="'auto' needs Ray, which is not installed"):
        run(tmp_path / "s.jsonl", "fake_runners:steady", "auto")


# --- A run whose clients Flower simulates there

RUN = "num-clients=4 client-selector='all' num-server-rounds=2 report=false"


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
def test_a_run_names_an_address_that_nobody_answers_at(
    wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert forager(["run", "--cluster", wrong, "-c", RUN]) == 2
    assert f"--cluster {wrong!r} cannot be reached" in capfd.readouterr().err
