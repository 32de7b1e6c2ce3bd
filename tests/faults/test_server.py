"""The server's processes killed for real: the SuperLink, then the ServerApp; a device that joins.

The run is one that remembers much: ages of clients, estimates of their streams, a plan of who
stores what; and samples on the devices.
"""

import pytest
from deployed import Deployment, settings
from story import Story

from server_app.callbacks.checkpoint import load_checkpoint

pytestmark = pytest.mark.timeout(1500)

NODES = ["node-1", "node-2", "node-3"]
ROUNDS = 12
RUN = settings(
    strategy="ode",
    client_selector="aoi",
    clients_per_round=2,
    stream__capacity=20,
    num_server_rounds=ROUNDS,
    round__deadline=75.0,
    run_name="faults",
)


@pytest.fixture
def deployment(tmp_path):
    started = Deployment(tmp_path, NODES)
    yield started
    started.stop()


def ages_go_on(events):
    """Tell whether each round's ages follow from those of the round before and who was chosen."""
    known = {}
    for event in events:
        now = dict(zip(sorted(event["chosen-from"]), event["ages"], strict=True))
        if known and any(now[name] != known[name] for name in now.keys() & known.keys()):
            return False
        known = {name: 0 if name in event["chosen"] else age + 1 for name, age in now.items()}
    return True


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
    assert resumed.process.wait(120) == 0, resumed.last_words()

    assert [event["round"] for event in story.events("round-finished")] == [*range(1, ROUNDS + 1)]
    assert len(story.events("run-started")) == 2
    assert story.events("run-finished")[-1]["reason"] == "completed"
    print(story.events("selected"), story.events("planned"), story.events("guidance"))
    assert {name: node_id for name, (_, node_id) in deployment.nodes().items()} == identities
    assert story.clients() == set(NODES)
    assert sum(story.events("streams")[-1]["stored"]) >= sum(stored) > 0  # devices forgot nothing
