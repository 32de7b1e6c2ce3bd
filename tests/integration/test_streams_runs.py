"""Clients that keep what they can of a stream, on the local engine and by wire."""

import json
import os

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from client_app.app import answer
from client_app.trainer import read_arrays
from server_app.config import default_config, read_config
from server_app.local import run_local
from server_app.loop import RunFailed
from strategies.registry import STREAM_RULES
from tasks import load_task
from wire.arrays import to_record
from wire.keys import ARRAYS, CONFIG, ESTIMATE, INGEST, METRICS, NUM_EXAMPLES, PLAN, ROUND


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def small(tmp_path, cache):
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "data.cache-dir": cache,
        "num-server-rounds": 3,
        "num-clients": 6,
        "clients-per-round": 3,
        "stream.capacity": 8,
        "data-selector": "ode",
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def last_model(result):
    return (result.folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("rule", STREAM_RULES)
def test_every_rule_runs_by_wire_within_its_capacity(small, rule):
    result = run_local({**small, "data-selector": rule, "local.check-wire": True})
    assert result.reason == "completed"
    assert not events(result, "quarantined")
    assert not any(e["failed"] for e in events(result, "exchange"))
    stored = events(result, "streams")[-1]
    assert stored["arrived"] > 0
    if rule != "unlimited":
        assert 0 < sum(stored["stored"]) <= 6 * 8


@pytest.mark.parametrize(
    "also",
    [
        {"ode.estimator": "participants", "ode.noise": 0.01},
        {"ode.estimator": "exact"},
        {"ode.layers": 0, "model": "mlp"},
        {"ode.coordinate": False, "ode.normalize": True},
        {"ode.quantities": "matched", "stream.ingest": "every-round", "stream.burst": 2},
        {"client-selector": "cosage", "uplink": "top-k", "objective": "prox", "stream.drift": 0.5},
        {"cohorts": "auxo", "aggregator": "fedyogi"},
    ],
    ids=lambda also: ",".join(also),
)
def test_ode_composes(small, also):
    result = run_local({**small, **also})
    assert result.reason == "completed"
    assert not events(result, "quarantined")
    assert not any(e["failed"] for e in events(result, "exchange"))


def test_the_plan_reaches_the_stores(small):
    result = run_local({**small, "num-server-rounds": 6, "clients-per-round": 6})
    plan = events(result, "planned")
    assert len(plan) == 1  # nobody came or went, and the streams are steady
    stored = events(result, "streams")[-1]["stored"]
    assert all(have <= most for have, most in zip(stored, plan[0]["stored"], strict=True))
    # From the second round on there is an estimate of the global gradient to send.
    sent = [e["bytes-down"] for e in events(result, "guidance")]
    assert sent[1] > sent[0] + 6 * 4 * 10 * 65


def test_a_resumed_run_goes_on_as_if_never_stopped(small):
    whole = run_local({**small, "num-server-rounds": 5, "run-name": "whole"})
    part = run_local({**small, "num-server-rounds": 3, "run-name": "part"})
    resumed = run_local({**small, "num-server-rounds": 5, "resume-from": str(part.folder)})
    assert last_model(resumed) == last_model(whole)


def test_without_room_the_run_ends_and_says_why(small):
    with pytest.raises(RunFailed, match="nothing that arrived has been kept"):
        run_local({**small, "stream.capacity": 0, "round.give-up-after": 0.1})


def device(tmp_path, **node):
    config = {**default_config(), "data-selector": "ode", "stream.capacity": 6}
    node = {"partition-id": 0, "num-partitions": 4, "state-dir": str(tmp_path / "state"), **node}
    return Context(1, 7, node, RecordDict(), config)


def train_message(server_round, quota=None):
    task = load_task_of_defaults()
    content = RecordDict(
        {
            ARRAYS: to_record(read_arrays(task.build_model())),
            CONFIG: ConfigRecord({ROUND: server_round}),
        }
    )
    if quota is not None:
        told = {"quota": quota, "class-weights": [1.0] * 10}
        content[PLAN] = ConfigRecord(told)
    return Message(content, dst_node_id=7, message_type="train")


def load_task_of_defaults():
    return load_task(read_config({"data-selector": "ode"}).task_spec())


def test_a_device_keeps_its_store_on_disk_between_processes(tmp_path):
    first = answer("train", [train_message(1)], [device(tmp_path)])[0]
    assert (tmp_path / "state").glob("*.samples")
    told = first.content[PLAN]
    assert sum(told["stored"]) == 6
    again = answer("train", [train_message(2)], [device(tmp_path)])[0]
    assert again.content[PLAN]["arrived"] >= told["arrived"]
    assert sum(again.content[PLAN]["stored"]) == 6
    estimate = again.content[ESTIMATE]["estimate"].numpy()
    assert estimate.shape == (10 * 65,)
    assert np.isfinite(estimate).all()


def test_a_plan_larger_than_the_store_is_cut_down(tmp_path):
    reply = answer("train", [train_message(1, [5] * 10)], [device(tmp_path)])[0]
    assert sum(reply.content[PLAN]["stored"]) <= 6


def test_a_device_without_model_only_tells_its_profile(tmp_path):
    content = RecordDict({CONFIG: ConfigRecord({ROUND: 1})})
    question = Message(content, dst_node_id=7, message_type=INGEST)
    reply = answer(INGEST, [question], [device(tmp_path)])[0]
    assert reply.content[METRICS][NUM_EXAMPLES] == 1
    assert sum(reply.content[PLAN]["velocity"]) > 0
    assert reply.content[PLAN]["arrived"] == 0


def test_a_store_of_another_task_is_refused(tmp_path):
    answer("train", [train_message(1)], [device(tmp_path)])
    other = device(tmp_path)
    other.run_config["task"] = "blobs"
    reply = answer("train", [train_message(2)], [other])[0]
    assert reply.has_error()
    assert "holds samples of task 'digits'" in reply.error.reason


def test_a_folder_that_fills_is_a_stream(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    context = device(tmp_path, **{"stream-path": str(folder)})
    nothing = answer("train", [train_message(1)], [context])[0]
    assert nothing.has_error()
    assert "nothing that arrived" in nothing.error.reason
    data = load_task_of_defaults().client_data(0, 4).train
    np.savez(folder / "a.npz", x=data.x[:20].numpy(), y=data.y[:20].numpy())
    os.utime(folder / "a.npz", (1, 1))  # written long ago
    reply = answer("train", [train_message(2)], [context])[0]
    assert reply.content[PLAN]["arrived"] == 20
    assert sum(reply.content[PLAN]["stored"]) == 6
