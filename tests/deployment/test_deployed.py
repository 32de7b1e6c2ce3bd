"""A whole run on what docker/ starts, without containers: TLS, node keys, all its programs."""

import pytest
from deployed import PATIENCE, Deployment, settings
from story import Story

pytestmark = pytest.mark.timeout(1500)

NODES = ["node-1", "node-2", "node-3"]
ARTIFACTS = ("config.json", "events.jsonl", "rounds.csv", "model.safetensors", "report.html")
RUN = settings(
    client_selector="all",
    num_server_rounds=1000,  # the test ends it: a machine may take many for a device to start
    local_steps=3000,  # a second or more of training
    local__trainer="serial",
    round__deadline=60.0,
    run_name="joined",
)


@pytest.fixture
def deployment(tmp_path):
    """A server, and the keys of three devices."""
    started = Deployment(tmp_path, NODES)
    yield started
    started.stop()


def test_a_device_joins_in_mid_run_and_is_killed_in_training(deployment):
    deployment.start_devices(NODES[:2], of=len(NODES))
    follower = deployment.submit("run", "--run-config", RUN)
    story = Story(deployment, "joined")
    story.until_round(1)
    deployment.start_device("node-3", "3/3")
    story.until_at_work("node-3", "train")
    story.kill("node-3", "in its first training")
    story.expect_trouble("node-3", "train")
    story.until_next_round()
    story.end()

    follower.process.wait(PATIENCE)
    rounds = [event["round"] for event in story.events("round-finished")]
    assert rounds == [*range(1, len(rounds) + 1)]
    # The last round may have been stopped half-way.
    first, *later = [e for e in story.exchanges("train") if e["round"] in rounds]
    assert (first["sent"], first["received"]) == (2, 2)
    assert all(exchange["received"] >= 1 for exchange in later), later
    for name in ARTIFACTS:
        assert (story.folder / name).stat().st_size > 0, name
    assert {name: status for name, (status, _) in deployment.nodes().items()}.keys() == set(NODES)

    deployment.stop()
    assert [program.family() for program in deployment.programs] == [[]] * len(deployment.programs)
