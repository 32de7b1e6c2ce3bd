"""The front door: real runs by `flwr run`, as `make run` starts them."""

import csv
import json
import re
import signal
import sys
import time

import pytest
from federation import EAGER
from forager.core.tasks.scaling import Scaling
from forager.server_app.run_folder import RunFolder
from forager.tools.cli.app import main
from forager.tools.cli.app import main as forager
from forager.tools.engine.local import run_local
from forager.tools.flower import run as flower_run
from forager.tools.flower.env import FLOWER_HOME, PROJECT, environment
from forager.tools.flower.plan import plan
from forager.tools.flower.processes import Program

pytestmark = pytest.mark.timeout(900)

SAME = {
    "strategy": "fedavg",
    "num-clients": 4,
    "num-server-rounds": 3,
    "seed": 5,
    "data.scale": "standard",
}
ARTIFACTS = ("config.json", "events.jsonl", "rounds.csv", "model.safetensors", "report.html")


class Launcher(Program):
    """`forager run`, watched from outside."""

    def __init__(self, folder, settings):
        command = [sys.executable, "-m", "forager.tools.cli", "run", "-c", settings]
        env = {**environment(folder / "home"), **EAGER}
        super().__init__(command, env=env, cwd=PROJECT, log=folder / "launcher.log")

    def wait(self, until=None, seconds=600):
        """Wait for its end or until it says something; return what it has said."""
        deadline = time.monotonic() + seconds
        while self.alive and not (until and until in self.log.read_text()):
            self.family()  # remembers its children, to know later which of them are left
            assert time.monotonic() < deadline, self.last_words()
            time.sleep(0.2)
        return self.log.read_text()

    @property
    def exit_code(self):
        return self.process.wait(timeout=300)


def settings(**values):
    return " ".join(f"{key.replace('_', '-')}={value!r}" for key, value in values.items())


def traces():
    """What launchers have left in the project folder."""
    return set(FLOWER_HOME.glob("runs/*"))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A run that succeeded: its launcher, what it said, its folder, and traces it left."""
    folder = tmp_path_factory.mktemp("simulated")
    before = traces()
    where = {"output_dir": str(folder / "runs"), "run_name": "sim"}
    with Launcher(folder, settings(**where, **SAME)) as launcher:
        said = launcher.wait()
        yield launcher, said, folder / "runs" / "sim", traces() - before


def test_a_run_succeeds_and_says_so(simulated):
    launcher, said, folder, _ = simulated
    assert launcher.exit_code == 0, said
    assert "round 3/3" in said
    assert re.search(r"^ended +completed$", said, re.MULTILINE)
    assert said.count("final accuracy") == 1
    assert str(folder / "report.html") in said
    for name in ARTIFACTS:
        assert (folder / name).stat().st_size > 0, name


def test_it_shows_nothing_of_the_machinery(simulated):
    _, said, _, _ = simulated
    for noise in ("\x1b", "INFO", "WARNING", "Warning", "SuperLink", "ray", "flwr"):
        assert noise not in said.replace(str(PROJECT), ""), said


def test_it_leaves_no_process_and_no_state(simulated):
    launcher, said, _, left = simulated
    assert launcher.exit_code == 0, said
    assert launcher.family() == []
    assert left == set()


def test_simulation_and_local_engine_agree(simulated, tmp_path):
    _, said, folder, _ = simulated
    local = run_local({**SAME, "output-dir": str(tmp_path)}).folder
    assert scale_found(folder) == pytest.approx(scale_found(local), rel=1e-4, abs=1e-6)
    assert chosen_clients(folder) == chosen_clients(local), said
    accuracies = [column(path, "accuracy") for path in (folder, local)]
    assert len(accuracies[0]) == 4  # before the first round, and after each
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.01)
    assert column(folder, "loss") == pytest.approx(column(local, "loss"), rel=1e-4)


def scale_found(folder):
    """Means and spreads that clients reported before round 1."""
    scaling = Scaling.read(RunFolder(folder).read_config()["data.scale"])
    return [*scaling.mean, *scaling.spread]


def chosen_clients(folder):
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    chosen = [event["chosen"] for event in events if event["event"] == "selected"]
    assert chosen
    return chosen


def column(folder, name):
    with (folder / "rounds.csv").open() as file:
        return [float(row[name]) for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("strategy='fedprx'", "strategy = 'fedprx'.*did you mean 'fedprox'"),
        ("fraction-evaluate=0.5", "fraction-evaluate = 0.5: clients have no test data; set data"),
        ("num-server-round=3", "num-server-round = 3: unknown key.*'num-server-rounds'"),
        ("learning-rate='fast'", "learning-rate = 'fast'.*number"),
        ("strategy=fedprox", '"strategy=fedprox" cannot be read'),
        ("seed=1 fedprox", '"fedprox" cannot be read'),
        ("seed=1979-05-27", "cannot be read .*type"),
        ("nowhere.toml", '"nowhere.toml" cannot be read.*No such file'),
    ],
)
def test_a_wrong_config_is_refused_before_anything_starts(text, answer, capsys, monkeypatch):
    monkeypatch.setattr(flower_run, "launch", lambda *_: pytest.fail("it was started"))
    assert main(["run", "-c", text]) == flower_run.REFUSED
    assert re.search(answer, capsys.readouterr().err)


def test_paths_are_made_absolute_and_settings_passed_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = plan({"data.path": "x.npz", "output-dir": "out", "run-name": "a"})
    assert found.run_config["data.path"] == str(tmp_path / "x.npz")
    assert found.folder == tmp_path / "out" / "a"
    assert plan({}).folder.parent == tmp_path / "runs"
    assert plan({"resume-from": "out/a"}).folder == tmp_path / "out" / "a"
    assert "num-supernodes=7 " in plan({"num-clients": 7}).federation


def test_an_interrupted_run_is_cleaned_up_and_can_go_on(tmp_path):
    before = traces()
    chosen = {"num_clients": 2, "num_server_rounds": 5000, "run_name": "cut"}
    with Launcher(tmp_path, settings(output_dir=str(tmp_path), **chosen)) as launcher:
        launcher.wait(until="round 2/5000")
        launcher.process.send_signal(signal.SIGINT)
        said = launcher.wait()
        assert launcher.exit_code == flower_run.INTERRUPTED, said
        assert launcher.family() == []
    assert traces() == before
    assert "The run was stopped (received SIGINT)." in said
    resumed = re.search(r"To continue: .+ resume (\S+)$", said, re.MULTILINE)
    assert resumed, said
    assert read_end(tmp_path / "cut")["reason"] == "interrupted"
    done = max(
        int(path.stem.removeprefix("round-"))
        for path in tmp_path.glob("cut/checkpoints/round-*.safetensors")
    )
    longer = f"num-server-rounds={done + 1}"
    assert forager(["resume", resumed[1], "--local", "-c", longer]) == 0
    assert read_end(tmp_path / "cut") == {"reason": "completed", "rounds": done + 1}


def read_end(folder):
    end = json.loads((folder / "events.jsonl").read_text().splitlines()[-1])
    assert end["event"] == "run-finished"
    return {key: end[key] for key in ("reason", "rounds")}
