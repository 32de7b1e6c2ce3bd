"""The server's processes killed for real: the SuperLink, then the ServerApp; a device that joins.

The run is one that remembers much: ages of clients, estimates of their streams, a plan of who
stores what; and samples on the devices.
"""

import os

import pytest
from deployed import PATIENCE, Deployment, settings
from forager.server_app.callbacks.checkpoint import load_checkpoint
from forager.tools.flower.env import PROJECT
from story import Story

pytestmark = pytest.mark.timeout(3600)

NODES = ["node-1", "node-2", "node-3"]
ROUNDS = 12
RUN = settings(
    strategy="ode-balanced",
    client_selector="aoi",
    clients_per_round=2,
    stream__capacity=20,
    num_server_rounds=ROUNDS,
    round__deadline=300.0,
    run_name="faults",
)


@pytest.fixture
def deployment(tmp_path):
    """A server and the keys of three devices, one of which has another PyTorch installed."""
    other = tmp_path / "other" / "torch-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.0.1\n")
    path = os.pathsep.join([str(other.parent), str(PROJECT), str(PROJECT / "selectors")])
    started = Deployment(tmp_path, NODES, more={"node-3": {"PYTHONPATH": path}})
    yield started
    started.stop()


def check_ages(selections):
    """Every age must follow from the rounds before, over restarts too."""
    known = {}
    for event in selections:
        for name, age in zip(event["chosen"], event["ages"], strict=True):
            assert age == known.get(name, age), event
        known = {name: age + 1 for name, age in known.items()} | dict.fromkeys(event["chosen"], 0)


def test_the_run_goes_on_and_can_be_resumed(deployment):
    for number, name in enumerate(NODES[:2], start=1):
        deployment.start_device(name, f"{number}/3")
    follower = deployment.submit("run", "--run-config", RUN)
    story = Story(deployment, "faults")
    story.until_round(1)

    story.mark("node-3 started in mid-run")
    deployment.start_device("node-3", "3/3")
    story.until_back("node-3")
    story.measure("it took part")
    assert "mixed versions: client node-3 has torch 0.0.1 instead of" in follower.log.read_text()
    identities = {name: node_id for name, (_, node_id) in deployment.nodes().items()}
    stored = story.events("streams")[-1]["stored"]

    story.kill("superlink", "in mid-run")
    deployment.start_superlink()
    story.measure("it was up again")
    story.measure("the run went on", story.until_next_round())
    assert len(story.events("run-started")) == 1  # the same run, the same ServerApp
    assert deployment.serverapp.alive

    follower.kill()  # nobody is there to go on by himself
    story.until_round(len(story.events("round-finished")) + 1)
    story.kill("serverapp", "while nobody followed the run")
    rounds = len(story.events("round-finished"))
    _, saved = load_checkpoint(str(story.folder))
    assert saved["round"] == rounds < ROUNDS
    deployment.start_serverapp()
    resumed = deployment.submit("resume")
    story.until_round(rounds + 1)
    story.measure("the resumed run went on")
    story.until_round(ROUNDS)
    assert resumed.process.wait(PATIENCE) == 0, resumed.last_words()

    assert [event["round"] for event in story.events("round-finished")] == [*range(1, ROUNDS + 1)]
    assert len(story.events("run-started")) == 2
    assert story.events("run-finished")[-1]["reason"] == "completed"
    # What the server knew is still known: ages, the plan, the estimate of the global gradient.
    check_ages(story.events("selected"))
    assert [event["round"] for event in story.events("planned") if event["round"] > rounds] == []
    sizes = {event["round"]: event["bytes-down"] for event in story.events("guidance")}
    assert sizes[rounds + 1] == sizes[rounds] > sizes[1]
    assert {name: node_id for name, (_, node_id) in deployment.nodes().items()} == identities
    assert story.clients() == set(NODES)
    assert sum(story.events("streams")[-1]["stored"]) >= sum(stored) > 0  # devices forgot nothing
