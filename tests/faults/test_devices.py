"""Devices that are killed, frozen and cut off for real while a run goes on.

Flower takes a device for lost when it has not heard of it for a minute, so this takes a while:
`make test-faults`.
"""

import time

import pytest
from deployed import Deployment, freeze, settings, thaw
from story import Story

pytestmark = pytest.mark.timeout(3600)

NODES = ["node-1", "node-2", "node-3"]
SHORT, LONG = 20.0, 100.0  # seconds; Flower's patience lies between them, at 60
# Every round asks all three a question (from the second on) and trains all three.
RUN = settings(
    strategy="cosage",
    clients_per_round=3,
    cosage__silent_ratio=0.0,
    top_k__density=1.0,
    num_server_rounds=500,
    local_steps=8000,  # some seconds of training
    round__deadline=300.0,  # Flower notices first; a slow machine has time to train
    run_name="faults",
)


@pytest.fixture
def story(tmp_path):
    """Three devices, each on a wire of its own, and a run that has finished its first round."""
    deployment = Deployment(tmp_path, NODES)
    try:
        deployment.start_devices(NODES, by_wire=True)
        deployment.submit("run", "--run-config", RUN)
        told = Story(deployment, "faults")
        told.until_round(1)
        yield told
    finally:
        deployment.stop()


def test_a_device_is_killed_in_training_in_a_question_and_twice_in_a_row(story):
    deployment = story.deployment
    identity = deployment.nodes()["node-1"][1]

    story.until_at_work("node-1", "train")
    story.kill("node-1", "in mid-training")
    story.expect_trouble("node-1", "train")
    story.measure("the run went on", story.until_next_round())
    deployment.bring_back("node-1")
    story.measure("the device was let in again")
    story.until_back("node-1")
    story.measure("it took part again")

    story.until_at_work("node-1", "query.summary")
    story.kill("node-1", "in mid-question")
    story.expect_trouble("node-1", "query.summary")
    story.measure("the run went on", story.until_next_round())
    deployment.bring_back("node-1")

    story.until_at_work("node-1", "train")
    story.kill("node-1", "a second time, as soon as it was back")
    story.measure("the run went on", story.until_next_round())
    deployment.bring_back("node-1")
    story.until_back("node-1")
    story.measure("it took part again")

    assert deployment.nodes()["node-1"] == ("online", identity)
    assert story.clients() == set(NODES)  # by these names only, all the time
    story.end()


def test_devices_are_frozen_and_cut_off_for_a_short_and_for_a_long_while(story):
    deployment = story.deployment
    frozen, wire = story.programs["node-2"], deployment.wires["node-3"]

    story.until_at_work("node-2", "train")
    mark = story.mark(f"node-2 frozen, node-3 cut off for {SHORT:g} s")
    freeze(frozen)
    wire.cut()
    time.sleep(SHORT)
    thaw(frozen)
    wire.mend()
    story.until_next_round()
    (exchange,) = story.exchanges("train", since=mark)[:1]
    assert exchange["received"] == 3, exchange  # nobody noticed
    story.measure("the run went on")

    story.until_at_work("node-2", "train")
    mark = story.mark(f"node-2 frozen, node-3 cut off for {LONG:g} s")
    freeze(frozen)
    wire.cut()
    passed = story.until_next_round(mark)
    story.measure("the run went on", passed)
    story.expect_trouble("node-2", "train")
    story.expect_trouble("node-3", "train")
    time.sleep(max(0.0, LONG - passed))
    thaw(frozen)
    wire.mend()
    woken = story.mark("node-2 woken, node-3 connected again")
    story.until_back("node-2", woken)
    story.until_back("node-3", woken)
    story.measure("both took part again")
    assert frozen.alive  # it was never started again

    mark = story.mark("node-3's connections broken by the router")
    wire.reset()
    story.until_back("node-3", mark)
    story.measure("it took part again")
    assert story.programs["node-3"].alive
    story.end()
