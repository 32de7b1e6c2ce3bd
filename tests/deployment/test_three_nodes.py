"""Whole runs on SuperLink and SuperNode processes over gRPC."""

import csv
import json
import socket
import time

import numpy as np
import pytest
from federation import eager_federation
from forager.client_app.device.resident import address
from forager.tools.flower.run import wait_for_end

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def federation(tmp_path):
    """A SuperLink that is ready for SuperNodes; ended with them after the test."""
    started = eager_federation(tmp_path)
    yield started
    started.stop()


def events(folder, kind):
    """Events of one kind in a run's log, which may still be growing."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in found if event["event"] == kind]


def wait_until(condition, seconds, explain):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


def troubled(exchange):
    """Keys of the clients that did not answer."""
    return {*exchange["failed"], *exchange["late"]}


def test_a_device_answers_questions_and_trains_on_its_own_data(federation, tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8)).astype(np.float32) * 3

    def samples(count):
        labels = np.arange(count) % 3
        return centres[labels] + rng.normal(size=(count, 8)).astype(np.float32), labels

    x_test, y_test = samples(60)
    x_train, y_train = samples(30)
    # The server's file lies in the SuperLink's folder: the device cannot see it.
    pool = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    np.savez(tmp_path / "superlink" / "server.npz", **pool)
    x_own, y_own = samples(90)
    (tmp_path / "own").mkdir()
    np.savez(tmp_path / "own" / "device.npz", x_train=x_own, y_train=y_own)
    own = tmp_path / "own" / "device.npz"
    # Its first training starts a worker that the later processes hand their messages to.
    state = tmp_path / "state"
    node = f"data-path='{own}' client-id='camera' state-dir='{state}' resident-seconds=600"
    device = federation.add_supernode("camera", node)

    run = tmp_path / "runs" / "device"
    run_id = federation.cli.submit(
        federation.app,
        {
            "strategy": "cosage",
            "top-k.density": 1.0,
            "task": "npz",
            "data.path": "server.npz",
            "data.num-classes": 3,
            "data.client-test-share": 0.2,
            "num-server-rounds": 3,
            "evaluate-every": 2,  # and after the last round
            "fraction-evaluate": 1.0,
            "round.deadline": 800.0,
            "round.question-deadline": 800.0,
            "output-dir": str(run.parent),
            "run-name": run.name,
        },
    )
    log = "\n".join(federation.cli.log(run_id))
    assert wait_for_end(federation.cli, run_id).succeeded, log + device.last_words()
    (worker,) = state.glob("*.sock")
    assert serves(worker)
    exchanges = events(run, "exchange")
    assert not any(troubled(exchange) for exchange in exchanges), exchanges
    chosen = [event["chosen"] for event in events(run, "selected") if event["phase"] == "train"]
    assert chosen[-1] == ["camera"]
    # One question a round, once there is an update to be similar to. Every message has a process
    # of its own, yet the last one brings only what has changed: the SuperNode keeps the model.
    questions = [e for e in exchanges if e["kind"] == "query.summary"]
    assert [(e["round"], e["received"]) for e in questions] == [(2, 1), (3, 1)]
    assert questions[1]["bytes-down"] < 0.8 * questions[0]["bytes-down"]
    # Who is chosen then is sent the name of the model, not the model.
    trainings = [e for e in exchanges if e["kind"] == "train"]
    assert [e["bytes-spared"] > 0 for e in trainings] == [False, True, True]
    assert [e["resent"] for e in trainings] == [0, 0, 0]
    assert trainings[2]["bytes-down"] < 0.5 * trainings[0]["bytes-down"]
    (score,) = events(run, "selected")[-2]["scores"]
    assert -1 <= score <= 1
    assert score != 0
    where = [event["where"] for event in events(run, "evaluated")]
    assert where.count("clients") == 2
    with (run / "rounds.csv").open() as file:
        accuracy = [float(row["accuracy"]) for row in csv.DictReader(file) if row["accuracy"]]
    assert accuracy[-1] > max(accuracy[0], 0.8)
    federation.stop()
    wait_until(lambda: not serves(worker), 120, lambda: "the worker outlives its SuperNode")


def serves(path):
    """Tell whether somebody listens at a socket; its name may be all that a killed worker left."""
    with socket.socket(socket.AF_UNIX) as probe, address(path) as place:
        return probe.connect_ex(place) == 0
