"""A certificate that runs out during a run, and a server that moves to another address."""

import importlib

import pytest
from deployed import DOCKER, PATIENCE, Deployment, settings, within
from forager.tools.flower.processes import free_port
from story import Story

pytestmark = pytest.mark.timeout(3600)

NODES = ["node-1", "node-2"]
NAMES = ["localhost", "127.0.0.1"]
RUN = settings(
    client_selector="all", num_server_rounds=500, round__deadline=75.0, run_name="faults"
)


def let_it_run_out(deployment, monkeypatch):
    """Give the SuperLink a certificate that was valid until a minute ago."""
    monkeypatch.syspath_prepend(str(DOCKER))
    credentials = importlib.import_module("credentials")
    monkeypatch.setattr(credentials, "SERVER_DAYS", -1 / 1440)
    folder = deployment.folder / "superlink"
    (folder / "server.crt").unlink()
    authority = credentials.authority(deployment.folder / "authority")
    assert credentials.server_certificate(folder, NAMES, *authority)


def renew(deployment):
    """What the advice of a device that is refused says: make it anew."""
    roles = ("authority", "public", "superlink", "serverapp")
    issued = [f"--{role}={deployment.folder / role}" for role in roles]
    said = deployment.tool("credentials.py", "server", f"--names={','.join(NAMES)}", *issued)
    assert "made the SuperLink's certificate" in said


def test_a_certificate_runs_out_and_the_server_moves(tmp_path, monkeypatch):
    deployment = Deployment(tmp_path, NODES)
    try:
        deployment.start_devices(NODES, by_wire=True)
        follower = deployment.submit("run", "--run-config", RUN)
        story = Story(deployment, "faults")
        story.until_round(1)
        follower.kill()  # nobody is there to go on by himself
        story.mark("the certificate has run out, and the SuperLink is started again")
        deployment.superlink.kill()
        let_it_run_out(deployment, monkeypatch)
        deployment.start_superlink()
        for name in NODES:
            program = story.programs[name]
            assert program.process.wait(PATIENCE) == 1, program.last_words()
            assert f"{name}: the server's certificate has expired" in program.last_words()
        story.measure("devices said so and ended")
        within(PATIENCE, lambda: bool(story.events("run-finished")), story.explain)
        story.measure("the run ended")
        rounds = len(story.events("round-finished"))

        mark = story.mark("the certificate renewed, the SuperLink started again, the run resumed")
        renew(deployment)
        for program in (deployment.superlink, deployment.serverapp):
            program.kill()
        deployment.start_superlink()
        deployment.start_serverapp()
        for name in NODES:
            deployment.bring_back(name)
        deployment.submit("resume")
        for name in NODES:
            story.until_back(name, mark)
        story.measure("both took part again")
        assert story.events("round-finished", mark)[0]["round"] == rounds + 1

        mark = story.mark("the server moved to another address")
        deployment.superlink.kill()
        deployment.fleet = f"127.0.0.1:{free_port()}"
        for wire in deployment.wires.values():  # as the name of a server that leads elsewhere now
            wire.move(deployment.fleet)
        deployment.start_superlink()
        for name in NODES:
            story.until_back(name, mark)
        story.measure("both took part again")
        assert all(story.programs[name].alive for name in NODES)
        assert len(story.events("run-started")) == 2
    finally:
        deployment.stop()
