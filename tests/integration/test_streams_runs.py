"""Clients that keep what they can of a stream, on the local engine and by wire."""

import json
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from forager.client_app.app import answer_one
from forager.client_app.device.sample_store import SampleStore
from forager.core.config import ConfigError, default_config, read_config
from forager.core.learning.model_arrays import read_arrays
from forager.core.methods.catalogue import methods
from forager.core.methods.stream import StreamMethod
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import (
    ARRAYS,
    CONFIG,
    ESTIMATE,
    INGEST,
    METRICS,
    NUM_EXAMPLES,
    PLAN,
    ROUND,
)
from forager.server_app.retries import RunFailed
from forager.tools.engine.local import run_local

STREAM_RULES = [name for name, m in methods("data-selector").items() if isinstance(m, StreamMethod)]
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    """Drawing it takes longer than all the rounds."""
    monkeypatch.setattr("forager.tools.report.write_report", lambda folder: None)


@pytest.fixture
def small(tmp_path, cache):
    return {
        "output-dir": str(tmp_path / "runs"),
        "data.cache-dir": cache,
        "num-server-rounds": 3,
        "num-clients": 6,
        "clients-per-round": 3,
        "stream.capacity": 8,
        "data-selector": "ode-balanced",
        "checkpoint.every": 0,
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
        {"ode.estimator": "participants"},
        {"data-selector": "ode", "ode.estimator": "stored", "ode.clients-per-label": 0},
        {"ode.estimator": "none", "stream.drift": 0.5},
        {"ode.estimator": "exact", "ode.layers": 0, "model": "mlp"},
        {"aggregator": "fedyogi"},
        {"client-selector": "cosage", "uplink": "top-k", "objective": "prox"},
        {"cohorts": "split-test"},
        {"cohorts": "neighbours", "similarity": "cosine"},
    ],
    ids=lambda also: ",".join(also),
)
def test_ode_composes(small, also):
    result = run_local({**small, **also})
    assert result.reason == "completed"
    assert not events(result, "quarantined")
    assert not any(e["failed"] for e in events(result, "exchange"))


def test_the_plan_reaches_the_stores(small):
    result = run_local({**small, "clients-per-round": 6})
    plan = events(result, "planned")
    assert len(plan) == 1  # nobody came or went, and the streams are steady
    stored = events(result, "streams")[-1]["stored"]
    assert all(have <= most for have, most in zip(stored, plan[0]["stored"], strict=True))
    # From the second round on there is an estimate of the global gradient to send.
    sent = [e["bytes-down"] for e in events(result, "guidance")]
    assert sent[1] >= sent[0] + 6 * 4 * 10 * 65


def test_a_resumed_run_goes_on_as_if_never_stopped(small):
    saved = {**small, "checkpoint.every": 1}
    whole = run_local({**saved, "num-server-rounds": 5, "run-name": "whole"})
    part = run_local({**saved, "num-server-rounds": 3, "run-name": "part"})
    resumed = run_local({**saved, "num-server-rounds": 5, "resume-from": str(part.folder)})
    assert last_model(resumed) == last_model(whole)


def test_without_room_for_a_sample_nothing_starts(small):
    with pytest.raises(ConfigError, match=r"stream.capacity = 0: must be at least 1"):
        run_local({**small, "stream.capacity": 0})
    assert not list(Path(small["output-dir"]).glob("*/events.jsonl"))


def test_a_run_whose_clients_never_keep_anything_ends_and_says_why(small, monkeypatch):
    monkeypatch.setattr(SampleStore, "places", lambda store, sample: 0)
    with pytest.raises(RunFailed, match="nothing that arrived has been kept"):
        run_local({**small, "round.give-up-after": 0.1})


def device(tmp_path, node=None, **config):
    run = {**default_config(), "data-selector": "ode-balanced", "stream.capacity": 6, **config}
    home = {"partition-id": 0, "num-partitions": 4, "state-dir": str(tmp_path / "state")}
    return Context(1, 7, {**home, **(node or {})}, RecordDict(), run)


def load_task_of_defaults():
    return load_task(read_config({"data-selector": "ode-balanced"}).task_spec())


def train_message(server_round, **plan):
    model = load_task_of_defaults().build_model()
    content = RecordDict(
        {ARRAYS: to_record(read_arrays(model)), CONFIG: ConfigRecord({ROUND: server_round})}
    )
    if plan:
        content[PLAN] = ConfigRecord({name.replace("_", "-"): told for name, told in plan.items()})
    return Message(content, dst_node_id=7, message_type="train")


def trained(context, server_round, **plan):
    return answer_one(train_message(server_round, **plan), context)


def fill(folder, name, x, y):
    folder.mkdir(exist_ok=True)
    np.savez(folder / name, x=x, y=y)
    os.utime(folder / name, (1, 1))  # written long ago


def test_a_device_keeps_its_store_on_disk_between_processes(tmp_path):
    first = trained(device(tmp_path), 1)
    assert list((tmp_path / "state").glob("*.samples"))
    told = first.content[PLAN]
    assert sum(told["stored"]) == 6
    again = trained(device(tmp_path), 2)
    assert again.content[PLAN]["arrived"] > told["arrived"]
    assert sum(again.content[PLAN]["stored"]) == 6
    estimate = again.content[ESTIMATE]["estimate"].numpy()
    assert estimate.shape == (10 * 65,)
    assert np.isfinite(estimate).all()


def test_a_client_weighs_how_fast_samples_come_or_what_those_weigh_that_it_stores(tmp_path):
    weights = [0.5 + label for label in range(10)]
    plan = {"quota": [1] * 6 + [0] * 4, "class_weights": weights}
    reply = trained(device(tmp_path / "store", **{"data-selector": "ode"}), 1, **plan)
    stored = np.array(reply.content[PLAN]["stored"])
    assert reply.content[METRICS][NUM_EXAMPLES] == pytest.approx(stored @ weights)
    for i, by_speed in enumerate(({}, {"data-selector": "reservoir"})):
        reply = trained(device(tmp_path / f"speed-{i}", **by_speed), 1, **plan)
        assert reply.content[METRICS][NUM_EXAMPLES] == pytest.approx(
            sum(reply.content[PLAN]["velocity"])
        )


def test_labels_have_holders_in_proportion_and_in_the_paper_five(small):
    """3 places, 10 labels on every client."""
    crowd = {**small, "partition": "iid", "num-clients": 20, "stream.capacity": 3}
    crowd["num-server-rounds"] = 1
    (plan,) = events(run_local(crowd), "planned")
    assert plan["holders"] == plan["stored"]
    assert sum(plan["holders"]) == 60
    assert max(plan["class-weights"]) < 1.2
    (plan,) = events(run_local({**crowd, "data-selector": "ode"}), "planned")
    assert max(plan["holders"]) <= 5


def test_a_plan_larger_than_the_store_is_cut_down(tmp_path):
    reply = trained(device(tmp_path), 1, quota=[5] * 10, class_weights=[1.0] * 10)
    assert 0 < sum(reply.content[PLAN]["stored"]) <= 6


def test_capacity_in_bytes_is_a_limit_too(tmp_path):
    reply = trained(device(tmp_path, {"stream-capacity-bytes": 3 * 64 * 4 + 7}), 1)
    assert sum(reply.content[PLAN]["stored"]) == reply.content[PLAN]["capacity"] == 3


def test_a_device_without_model_only_tells_its_profile(tmp_path):
    content = RecordDict({CONFIG: ConfigRecord({ROUND: 1})})
    question = Message(content, dst_node_id=7, message_type=INGEST)
    reply = answer_one(question, device(tmp_path))
    assert reply.content[METRICS][NUM_EXAMPLES] == 1
    assert sum(reply.content[PLAN]["velocity"]) > 0
    assert reply.content[PLAN]["arrived"] == 0


def test_a_store_of_another_task_is_set_aside(tmp_path, said):
    trained(device(tmp_path), 1)
    assert trained(device(tmp_path, task="blobs"), 2).has_error()  # the model is that of digits
    assert 'holds samples for ["digits", [1, 8, 8], 10' in said[0]
    assert list((tmp_path / "state").glob("*.samples.other-1"))


def test_what_another_rule_left_behind_is_no_hindrance(tmp_path):
    trained(device(tmp_path, **{"data-selector": "reservoir"}), 4)
    reply = trained(device(tmp_path), 1)
    assert sum(reply.content[PLAN]["stored"]) == 6
    assert reply.content[PLAN]["arrived"] < 100  # it began again


def test_a_folder_that_fills_is_a_stream(tmp_path):
    context = device(tmp_path, {"stream-path": str(tmp_path / "in")})
    nothing = trained(context, 1)
    assert nothing.has_error()
    assert "nothing that arrived" in nothing.error.reason
    data = load_task_of_defaults().client_data(0, 4).train
    x, y = data.x[:20].numpy().copy(), data.y[:20].numpy().copy()
    x[3], y[5] = np.nan, 77  # neither can be of any use
    fill(tmp_path / "in", "a.npz", x, y)
    # No plan knows this client's labels yet: it keeps what it can until there is one.
    reply = trained(context, 2, class_weights=[1.0] * 10)
    assert reply.content[PLAN]["arrived"] == 18
    assert sum(reply.content[PLAN]["stored"]) == 6
    fill(tmp_path / "in", "b.npz", x[:3], y[:3])
    again = trained(context, 3, class_weights=[1.0] * 10)
    assert again.content[PLAN]["arrived"] == 21


def test_a_device_needs_nothing_of_the_servers_data(tmp_path):
    data = load_task_of_defaults().client_data(0, 4).train
    x, y = data.x.numpy(), data.y.numpy()
    np.savez(tmp_path / "own.npz", x_train=x[:4], y_train=y[:4])
    fill(tmp_path / "in", "a.npz", x[4:24], y[4:24])
    elsewhere = {"task": "npz", "data.path": "/not/here.npz", "data.num-classes": 10}
    context = device(tmp_path, **elsewhere)
    context.node_config = {
        "client-id": "camera-7",
        "data-path": str(tmp_path / "own.npz"),
        "stream-path": str(tmp_path / "in"),
        "state-dir": str(tmp_path / "state"),
    }
    told = trained(context, 1).content[PLAN]
    assert told["arrived"] == 20
    assert sum(told["stored"]) == 6


def counting(start):
    """A source of one's own: the same ten samples of two labels, again and again."""
    return ((np.full((8, 8), number % 10 / 10), number % 2) for number in range(start, start + 25))


def test_a_source_of_ones_own_is_a_stream_and_what_comes_twice_is_stored_once(tmp_path):
    context = device(tmp_path, {"stream-source": f"{__name__}:counting"}, **{"stream.capacity": 20})
    assert trained(context, 1).content[PLAN]["arrived"] == 25
    told = trained(context, 2).content[PLAN]
    assert told["arrived"] == 50
    assert list(told["stored"][:2]) == [5, 5]
    assert sum(told["stored"]) == 10


def test_noisy_labels_arrive_as_they_are(tmp_path):
    def labels_per_round(place, **noise):
        return np.array(trained(device(tmp_path / place, **noise), 1).content[PLAN]["velocity"])

    clean = labels_per_round("clean")
    noisy = labels_per_round("noisy", noise="closed-set", **{"corruption.rate": 0.4})
    assert noisy.sum() == pytest.approx(clean.sum())
    assert np.abs(noisy - clean).sum() > 0.05 * clean.sum()


def test_a_label_that_the_plan_does_not_know_is_trained_with_weight_one(tmp_path):
    data = load_task_of_defaults().client_data(0, 4).train
    fill(tmp_path / "in", "a.npz", data.x[:6].numpy(), np.full(6, 3))
    context = device(tmp_path, {"stream-path": str(tmp_path / "in")})
    # The plan was made before label 3 was ever seen: it has no weight, and the client no quota.
    reply = trained(context, 1, class_weights=[2.0, 2.0, 2.0, 0.0, *[2.0] * 6])
    assert reply.content[PLAN]["stored"][3] == 6
    assert reply.content[METRICS][NUM_EXAMPLES] == 6


def test_a_client_that_has_nothing_of_its_labels_remembers_what_it_saw(tmp_path):
    data = load_task_of_defaults().client_data(0, 4).train
    zeros = np.flatnonzero(data.y.numpy() == int(data.y[0]))[:4]
    fill(tmp_path / "in", "a.npz", data.x[zeros].numpy(), data.y[zeros].numpy())
    context = device(tmp_path, {"stream-path": str(tmp_path / "in")})
    other = [0] * 10
    other[(int(data.y[0]) + 1) % 10] = 6
    assert trained(context, 1, quota=other, class_weights=[1.0] * 10).has_error()
    question = Message(
        RecordDict({CONFIG: ConfigRecord({ROUND: 2})}), dst_node_id=7, message_type=INGEST
    )
    told = answer_one(question, context).content[PLAN]
    assert told["arrived"] == len(zeros)
    assert told["velocity"][int(data.y[0])] > 0


def test_on_a_full_disk_a_device_trains_on_what_it_has(tmp_path, monkeypatch):
    rule = {"data-selector": "reservoir"}
    first = trained(device(tmp_path, **rule), 1)
    connect = sqlite3.connect

    def full(path, **options):
        file = connect(path, **options)
        file.execute("PRAGMA max_page_count = 1")  # it cannot grow
        return file

    monkeypatch.setattr(sqlite3, "connect", full)
    reply = trained(device(tmp_path, **rule, **{"stream.capacity": 60}), 60)
    assert reply.content[PLAN]["arrived"] > first.content[PLAN]["arrived"]
    monkeypatch.undo()
    question = Message(
        RecordDict({CONFIG: ConfigRecord({ROUND: 1})}), dst_node_id=7, message_type=INGEST
    )
    told = answer_one(question, device(tmp_path, **rule)).content[PLAN]
    assert list(told["stored"]) == list(first.content[PLAN]["stored"])
