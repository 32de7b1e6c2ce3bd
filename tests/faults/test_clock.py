"""Clocks that jump while a run goes on, by libfaketime: no process knows that it is fooled."""

import os
from pathlib import Path

import pytest
from deployed import Deployment, settings
from story import Story

pytestmark = pytest.mark.timeout(1200)

NODES = ["node-1", "node-2"]
SERVER = ["superlink", "serverapp"]
RUN = settings(
    client_selector="all", num_server_rounds=500, round__deadline=75.0, run_name="faults"
)


def faketime():
    """The library, installed or where the environment says; the test cannot be without it."""
    places = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    found = os.environ.get("LIBFAKETIME") or next(map(str, places), "")
    if not found:
        pytest.skip("libfaketime is not here: apt-get install libfaketime")
    return found


class Clock:
    """What some processes take for the time of day; how much time passes they still know."""

    def __init__(self, library, file):
        self.file = file
        self.set(0)
        self.environment = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead):
        """Let it be so many seconds ahead of the truth."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{ahead:+d}\n")
        new.replace(self.file)


def test_clocks_jump_on_a_device_and_on_the_server(tmp_path):
    library = faketime()
    server, device = (Clock(library, tmp_path / f"{name}.clock") for name in ("server", "device"))
    more = dict.fromkeys(SERVER, server.environment) | {"node-2": device.environment}
    deployment = Deployment(tmp_path, NODES, more=more)
    try:
        deployment.start_devices(NODES)
        follower = deployment.submit("run", "--run-config", RUN)
        story = Story(deployment, "faults")
        story.until_round(1)

        story.mark("the clock of node-2 put an hour ahead")
        device.set(3600)
        assert story.programs["node-2"].process.wait(120) == 1
        assert "node-2: this device's clock differs" in story.programs["node-2"].last_words()
        story.measure("the device said so and ended")
        story.expect_trouble("node-2", "train")
        story.measure("the run went on", story.until_next_round())
        device.set(0)
        deployment.bring_back("node-2")
        story.until_back("node-2")
        story.measure("it took part again")

        for jump in (200, 0):  # forward, and back to the truth
            mark = story.mark(f"the clock of the server set to {jump} s ahead of the truth")
            server.set(jump)
            story.until_next_round()
            story.measure("the run went on")
            story.until_back("node-1", mark)
            story.measure("devices took part again")
        assert follower.alive
    finally:
        deployment.stop()
