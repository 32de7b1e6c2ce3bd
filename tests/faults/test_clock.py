"""Clocks that jump while a run goes on: the C library of some processes tells another time of day.

How much time passes they still know, as on a machine whose clock is set.
"""

import shutil
import subprocess

import pytest
from deployed import PATIENCE, Deployment, settings
from story import Story

pytestmark = pytest.mark.timeout(3600)

NODES = ["node-1", "node-2"]
SERVER = ["superlink", "serverapp"]
RUN = settings(
    client_selector="all", num_server_rounds=500, round__deadline=75.0, run_name="faults"
)
# Stands before the C library: the time of day, plus the seconds that a file holds.
LIBRARY = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    char text[32] = "";
    int file = open(getenv("CLOCK_FILE"), O_RDONLY);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += ahead();
    return code;
}
int gettimeofday(struct timeval *now, void *zone) {
    int code = syscall(SYS_gettimeofday, now, zone);
    now->tv_sec += ahead();
    return code;
}
time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture
def library(tmp_path):
    """The library, built for this machine."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler is here to build the clock with")
    source, built = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(LIBRARY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source], check=True)
    return str(built)


class Clock:
    """What some processes take for the time of day."""

    def __init__(self, library, file):
        self.file = file
        self.set(0)
        self.environment = {"LD_PRELOAD": library, "CLOCK_FILE": str(file)}

    def set(self, ahead):
        """Let it be this many seconds ahead of the truth."""
        new = self.file.with_suffix(".new")
        new.write_text(str(ahead))
        new.replace(self.file)


def test_clocks_jump_on_a_device_and_on_the_server(tmp_path, library):
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
        assert story.programs["node-2"].process.wait(PATIENCE) == 1
        assert "node-2: the server has ended the session" in story.programs["node-2"].last_words()
        assert deployment.start_device("node-2").process.wait(PATIENCE) == 1
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
