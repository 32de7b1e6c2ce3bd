"""Runs at once and one after the other on the same devices, over gRPC, all of which remember.

A run must find nothing of another one, and a resumed run nothing of rounds that it plays again.
Samples that a device has stored from its stream are its own: they outlive runs. The same on the
local engine, for every method, is ``tests/integration/test_second_run.py``.
"""

import json
from itertools import count

import numpy as np
import pytest
from federation import START_SECONDS, eager_federation
from forager.server_app.run_folder import RunFolder
from forager.tools.cli.diagnose import examined
from forager.tools.diagnose.advice import diagnose
from forager.tools.flower.run import wait_for_end
from safetensors.numpy import load_file

pytestmark = pytest.mark.timeout(1500)

DEVICES = ("first", "second")
NUMBERS = count()  # of the runs: folders that there are cannot be counted while runs begin
CONFIGS = {
    "controls and coresets": {
        "strategy": "trusted",
        "coreset.every": 1,
        "coreset.first-round": 0,
        "objective": "scaffold",
        "uplink": "top-k",
        "top-k.density": 0.2,
    },
    "stream": {"strategy": "ode-balanced", "stream.capacity": 8},
}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A SuperLink, and devices that keep their state in files."""
    started = eager_federation(tmp_path_factory.mktemp("second-run"))
    nodes = {}
    for number, name in enumerate(DEVICES):
        state = started.folder / f"state-{name}"
        node = f"partition-id={number} num-partitions={len(DEVICES)} client-id='{name}'"
        nodes[name] = f"{node} state-dir='{state}' resident-seconds=600"
    started.add_supernodes(nodes)
    yield started
    started.stop()


def play(federation, *configs):
    """Play runs at the same time; return their folders. No answer may be missing or set aside."""
    submitted = []
    for config in configs:
        name = f"run-{next(NUMBERS)}"
        settings = {
            "num-server-rounds": 2,
            "client-selector": "all",
            "checkpoint.every": 1,
            "round.deadline": 800.0,
            "round.question-deadline": 800.0,
            "report": False,
            "output-dir": str(federation.folder / "runs"),
            "run-name": name,
            **config,
        }
        folder = federation.folder / "runs" / name
        if "resume-from" in config:
            del settings["run-name"]
            folder = folder.with_name(config["resume-from"].rpartition("/")[2])
        submitted.append((federation.cli.submit(federation.app, settings), folder))
        # Flower unpacks the app once: a run that begins meanwhile would find half of it.
        federation.superlink.wait_for(folder.exists, START_SECONDS)
    for run_id, folder in submitted:
        log = "\n".join(federation.cli.log(run_id))
        assert wait_for_end(federation.cli, run_id).succeeded, log
        check(folder)
    return [folder for _, folder in submitted]


def check(folder):
    """Make sure that a run went as if nothing had been before it."""
    found = events(folder)
    kinds = [event["event"] for event in found]
    assert kinds.count("round-finished") == 2
    assert [e["reason"] for e in found if e["event"] == "run-finished"] == ["completed"]
    assert "quarantined" not in kinds, [e for e in found if e["event"] == "quarantined"]
    for event in found:
        if event["event"] == "exchange":
            assert (event["failed"], event["late"]) == ({}, []), event
            assert event["kind"] != "train" or event["received"] == len(DEVICES)


def events(folder, kind=""):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if kind in ("", event["event"])]


def model(folder):
    return load_file(folder / "model.safetensors")


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.fixture(scope="module")
def played(federation):
    """Folders of the runs of every config, by turn: all run at once, and then all once more."""
    return [dict(zip(CONFIGS, play(federation, *CONFIGS.values()), strict=True)) for _ in range(2)]


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "stream"])
def test_a_second_run_equals_the_first(played, name):
    first, second = (model(turn[name]) for turn in played)
    assert_same(second, first)


def test_stored_samples_outlive_a_run(played):
    streams = [event for turn in played for event in events(turn["stream"], "streams")]
    arrived = [event["arrived"] for event in streams]
    assert arrived == sorted(set(arrived)), "a stream began again"


def test_a_run_goes_on_before_where_its_devices_are(federation, played):
    """The newest checkpoint is lost: the devices are a round ahead of the run."""
    first, second = (turn["controls and coresets"] for turn in played)
    assert [event["chose"] for event in events(second, "coresets")] == [len(DEVICES)] * 2
    (second / "checkpoints" / "round-000002.safetensors").unlink()
    resumed = {**CONFIGS["controls and coresets"], "resume-from": str(second)}
    assert play(federation, resumed) == [second]
    assert len(events(second, "run-started")) == 2
    assert_same(model(second), model(first))


def test_options_that_change_messages_or_the_work_of_clients(federation):
    settings = {"strategy": "fedavg", "uplink": "int8", "downlink": "changes", "work": "by-speed"}
    settings |= {"round.deadline": "auto", "aggregation.late": True, "leave-one-out": True}
    (folder,) = play(federation, {**settings, "aggregator": "clipped-mean", "model": "mlp"})
    for sent in events(folder, "uplink"):
        assert sent["bytes-sparse"] < 0.27 * sent["bytes-dense"]
    first, second = (e for e in events(folder, "exchange") if e["kind"] == "train")
    assert second["bytes-down"] < first["bytes-down"]
    assert second["bytes-spared"] > 0
    assert first["deadline"] == 600  # until the times of five clients are known
    told = events(folder, "contributed")
    assert [len(each["values"]) for each in told] == [len(DEVICES)] * 2
    assert max(told[0]["shares"]) < 2 / 3
    accuracies = [each["metrics"]["accuracy"] for each in events(folder, "evaluated")]
    assert accuracies[-1] > accuracies[0] + 0.1


def test_the_devices_are_examined_as_in_any_other_run(federation):
    folder = federation.folder / "runs" / "examined"
    keys = {"output-dir": str(folder.parent), "run-name": folder.name, "num-clients": len(DEVICES)}
    keys = examined({**keys, "round.min-replies": 2, "diagnose.seconds": 600.0}, 1)
    run_id = federation.cli.submit(federation.app, keys)
    log = "\n".join(federation.cli.log(run_id))
    assert wait_for_end(federation.cli, run_id).succeeded, log
    lines, page = diagnose(RunFolder.open(folder))
    assert "clients seen: 2; needed: 8" in lines["label skew"]
    assert "tuning on own data" in lines["own models"]
    assert page.exists()
