"""A deployed run on whatever Flower is installed, by the protocol that its SuperNodes speak.

`make test-newest` runs this with Flower's newest version, where that is HTTP. The tests of
tests/deployment are about gRPC, which SuperNodes speak up to 1.39.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import flwr
import pytest
from federation import Federation
from forager.core.wire.versions import nodes_speak
from forager.tools.flower.reach import server_finding
from forager.tools.flower.run import wait_for_end

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """A SuperLink, two SuperNodes of one site and a third of another."""
    started = Federation(tmp_path)
    nodes = {}
    for i, site in enumerate(["site-a", "site-a", "site-b"]):
        own = f"tags='gpu,{site}' state-dir='{tmp_path / f'state-{i}'}'"
        nodes[f"node-{i}"] = f"partition-id={i} num-partitions=3 {own}"
    started.add_supernodes(nodes)
    yield started
    started.stop()


def test_the_supernodes_of_one_site_train_under_cosage(
    federation: Federation, tmp_path: Path
) -> None:
    found = server_finding(federation.fleet)
    assert found.state == "ok", found
    assert f"speaks {nodes_speak()}" in found.found
    assert f"flwr {flwr.__version__}" in found.found

    run = tmp_path / "runs" / "newest"
    run_id = federation.cli.submit(
        federation.app,
        {
            "strategy": "cosage",
            "task": "blobs",
            "clients.tags": "site-a",
            "clients-per-round": 1,
            "num-server-rounds": 3,
            "fraction-evaluate": 1.0,
            "data.client-test-share": 0.2,
            "round.deadline": 200.0,
            "round.question-deadline": 200.0,
            "output-dir": str(run.parent),
            "run-name": run.name,
        },
    )
    log = "\n".join(federation.cli.log(run_id))
    nodes = "\n".join(program.last_words() for program in federation.programs)
    # On a machine that is too busy, a process that sends no sign of life for 60 s loses its token:
    # the run ends with "No heartbeat received", and the SuperLink answers it with 401 from then on.
    ended = wait_for_end(federation.cli, run_id)
    assert ended.succeeded, f"{ended}\n{log}\n{nodes}"

    lines = (run / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    exchanges = [event for event in events if event["event"] == "exchange"]
    assert not any(e["failed"] or e["late"] for e in exchanges), exchanges
    chosen = [
        event["chosen"]
        for event in events
        if event["event"] == "selected" and event["phase"] == "train"
    ]
    assert [len(keys) for keys in chosen] == [1, 1, 1]
    assert {key for keys in chosen for key in keys} == {"0", "1"}
    (left_out,) = [event for event in events if event["event"] == "left-out"]
    assert left_out["clients"] == ["2"]
    assert left_out["reason"].startswith("has the tags gpu, site-b; ")
    assert "left out: 1 of 3 clients, 2 (" in log
    assert {e["received"] for e in exchanges if e["kind"] == "evaluate"} == {2}
    assert any(e["kind"] == "query.summary" and e["received"] for e in exchanges)
    with (run / "rounds.csv").open() as file:
        accuracy = [float(row["accuracy"]) for row in csv.DictReader(file) if row["accuracy"]]
    assert accuracy[-1] > accuracy[0]
