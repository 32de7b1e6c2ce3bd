"""Whole runs on the local engine."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message, MetricRecord
from forager.core.config import ConfigError
from forager.core.wire.arrays import to_record
from forager.core.wire.delivery import Delivery
from forager.core.wire.keys import ARRAYS, METRICS
from forager.server_app.retries import RunFailed
from forager.tools.engine import local_grid
from forager.tools.engine.local import run_local
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def small(tmp_path, cache):
    """Settings of a run that takes a moment."""
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "data.cache-dir": cache,
        "num-server-rounds": 4,
        "num-clients": 6,
    }


def events(folder, kind):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def model(folder):
    return load_file(folder / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def test_a_run_leaves_everything_behind(small):
    result = run_local({**small, "report": True})
    assert result.reason == "completed"
    for name in ("config.json", "events.jsonl", "rounds.csv", "model.safetensors", "report.html"):
        assert (result.folder / name).stat().st_size > 0
    assert len(list((result.folder / "checkpoints").iterdir())) == 2
    assert result.rounds[-1]["accuracy"] > result.rounds[0]["accuracy"]
    assert result.rounds[-1]["round"] == 4


def test_a_report_that_cannot_be_drawn_costs_nothing_else(small, monkeypatch, caplog):
    def fail(folder):
        raise KeyError("no such picture")

    monkeypatch.setattr("forager.tools.report.write_report", fail)
    result = run_local({**small, "report": True})
    assert result.reason == "completed"
    assert (result.folder / "model.safetensors").exists()
    assert "no such picture" in caplog.text


def test_training_learns(small):
    result = run_local({**small, "num-server-rounds": 15, "client-selector": "all"})
    assert result.rounds[-1]["accuracy"] > 0.85


def test_same_seed_same_run_other_seed_other_run(small):
    first, again = run_local(small), run_local(small)
    other = run_local({**small, "seed": 1})
    assert same(model(first.folder), model(again.folder))
    assert not same(model(first.folder), model(other.folder))


STACKS = [
    {},
    {"client-selector": "round-robin", "aggregator": "fedyogi", "uplink": "top-k"},
    {"aggregator": "fedavgm", "objective": "prox", "momentum": 0.9},
    {"aggregator": "fedadam", "schedule.kind": "cosine", "model": "mlp"},
]


@pytest.mark.parametrize("stack", STACKS)
def test_a_resumed_run_equals_one_never_stopped(small, stack):
    whole = run_local({**small, **stack, "num-server-rounds": 6, "schedule.rounds": 6})
    half = run_local({**small, **stack, "num-server-rounds": 3, "schedule.rounds": 6})
    resumed = run_local(
        {
            **small,
            **stack,
            "num-server-rounds": 6,
            "schedule.rounds": 6,
            "resume-from": str(half.folder),
        }
    )
    assert resumed.folder == half.folder.resolve()
    assert same(model(whole.folder), model(resumed.folder))
    chosen = [[e["chosen"] for e in events(r.folder, "selected")] for r in (whole, resumed)]
    assert chosen[0] == chosen[1]
    accuracies = [[row["accuracy"] for row in r.rounds] for r in (whole, resumed)]
    assert accuracies[0] == accuracies[1]


def command(config):
    told = {"strategy": "fedavg", **config}
    pairs = " ".join(f"{k}={json.dumps(v)}" for k, v in told.items())
    return [sys.executable, "-m", "forager.tools.cli", "run", "--local", "-c", pairs]


def start(config):
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'selectors'}"}
    return subprocess.Popen(
        command(config),
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_round(folder, number, process):
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        path = folder / "events.jsonl"
        done = [e for e in _whole_lines(path) if e["event"] == "round-finished"]
        if len(done) >= number:
            return
        time.sleep(0.02)
    raise AssertionError(f"round {number} never came: {process.stdout.read()}")


def _whole_lines(path):
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def stopped_by(number, long):
    """A run that got a signal after three rounds, and the rounds in its newest checkpoint."""
    process = start({**long, "num-server-rounds": 5000})
    folder = Path(long["output-dir"]) / long["run-name"]
    wait_for_round(folder, 3, process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == (130 if number == signal.SIGTERM else -signal.SIGKILL), output
    newest = max(path.stem for path in (folder / "checkpoints").glob("*.safetensors"))
    return folder, int(newest.removeprefix("round-"))


def test_a_killed_run_is_resumed_exactly(small):
    long = {**small, "checkpoint.every": 1, "run-name": "long"}
    folder, done = stopped_by(signal.SIGKILL, long)
    assert done >= 2  # the third may not have been saved yet
    assert_resumed_exactly(long, folder, done + 2)


def test_a_signal_saves_rounds_that_had_no_checkpoint_yet(small):
    long = {**small, "checkpoint.every": 5000, "run-name": "long"}
    folder, done = stopped_by(signal.SIGTERM, long)
    assert events(folder, "run-finished")[-1]["reason"] == "interrupted"
    assert (folder / "rounds.csv").exists()
    assert len(list((folder / "checkpoints").iterdir())) == 1
    assert done >= 2  # the signal may come before the third, already in the log, counts as done
    assert_resumed_exactly(long, folder, done + 2)


def assert_resumed_exactly(long, folder, rounds):
    """A run that goes on from where it was stopped ends as one that never was."""
    resumed = run_local({**long, "num-server-rounds": rounds, "resume-from": str(folder)})
    whole = run_local({**long, "num-server-rounds": rounds, "run-name": "whole"})
    assert same(model(whole.folder), model(resumed.folder))


def test_a_damaged_checkpoint_costs_a_round_not_the_run(small):
    half = run_local({**small, "num-server-rounds": 3})
    newest = sorted((half.folder / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    resumed = run_local({**small, "num-server-rounds": 5, "resume-from": str(half.folder)})
    whole = run_local({**small, "num-server-rounds": 5})
    assert same(model(whole.folder), model(resumed.folder))


def test_foreign_checkpoints_are_refused(small, tmp_path):
    done = run_local(small)
    with pytest.raises(ValueError, match=r"resume-from = .*learning-rate is 0.5, was 0.1"):
        run_local({**small, "learning-rate": 0.5, "resume-from": str(done.folder)})
    foreign = tmp_path / "model.safetensors"
    foreign.write_bytes(b"no model")
    for where in (foreign, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="resume-from"):
            run_local({**small, "resume-from": str(where)})


def test_early_stop_at_a_target(small):
    result = run_local({**small, "num-server-rounds": 50, "early-stop.target": 0.5})
    assert result.reason == "early-stop"
    assert result.rounds[-1]["accuracy"] >= 0.5 > result.rounds[-2]["accuracy"]
    with pytest.raises(ConfigError, match=r"early-stop.target = 1.5 .* accuracy is a share"):
        run_local({**small, "early-stop.target": 1.5})


def test_a_run_can_be_judged_by_what_should_be_low(small):
    own_data = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2, "report": True}
    own_data["metrics"] = "loss,accuracy"
    result = run_local({**small, **own_data, "num-server-rounds": 50, "early-stop.target": 1.5})
    assert result.reason == "early-stop"
    *_, before, last = result.rounds
    assert before["loss"] > 1.5 >= last["loss"]
    assert last["clients-loss-worst-10"] > last["clients-loss-mean"] > last["clients-loss-best-10"]
    assert last["clients-accuracy-worst-10"] < last["clients-accuracy-best-10"]
    with (result.folder / "rounds.csv").open() as file:
        columns = file.readline().strip().split(",")
    assert columns.count("loss") == 1
    assert {"accuracy", "clients-loss-mean", "clients-accuracy-mean"} <= set(columns)
    assert "Loss after round" in (result.folder / "report.html").read_text()


def test_early_stop_when_nothing_gets_better(small):
    stuck = {**small, "learning-rate": 1e-9, "early-stop.patience": 2, "num-server-rounds": 50}
    result = run_local(stuck)
    assert result.reason == "early-stop"
    assert result.rounds[-1]["round"] == 3


@pytest.mark.parametrize(
    "stack",
    [
        {"aggregator": name}
        for name in ("fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "qfedavg", "median")
    ]
    + [
        {"aggregator": "trimmed-mean", "uplink": "top-k"},
        {"aggregator": "krum", "client-selector": "all", "partition": "iid"},
        {"aggregator": "multi-krum", "client-selector": "all"},
        {"aggregator": "bulyan", "clients-per-round": 8, "num-clients": 9},
    ],
)
def test_every_aggregator_learns_by_wire(small, stack):
    result = run_local(
        {**small, "num-clients": 8, "fraction-train": 0.8, "local.check-wire": True, **stack}
    )
    assert result.reason == "completed"
    assert result.rounds[-1]["loss"] < result.rounds[0]["loss"]


def test_checking_the_wire_changes_nothing(small):
    plain = run_local(small)
    checked = run_local({**small, "local.check-wire": True})
    assert same(model(plain.folder), model(checked.folder))
    assert [r["bytes-up"] for r in plain.rounds[1:]] == [r["bytes-up"] for r in checked.rounds[1:]]


def test_clients_evaluate_on_their_own_data(small):
    result = run_local({**small, "fraction-evaluate": 1.0, "data.client-test-share": 0.2})
    last = result.rounds[-1]
    assert (
        last["clients-accuracy-worst-10"]
        <= last["clients-accuracy-mean"]
        <= last["clients-accuracy-best-10"]
    )
    assert last["clients-accuracy-variance"] > 0


def poison(monkeypatch, spoil):
    """Let ``spoil`` change the replies of client 0."""
    honest = local_grid.answer

    def answer(requests, contexts):
        replies = list(honest(requests, contexts))
        for i, context in enumerate(contexts):
            if requests.kind == "train" and context.node_config["partition-id"] == 0:
                replies[i] = spoil(replies[i], requests[i])
        return Delivery.of(replies)

    monkeypatch.setattr(local_grid, "answer", answer)


def _nan(reply, message):
    arrays = {k: a.numpy() * np.nan for k, a in reply.content[ARRAYS].items()}
    reply.content[ARRAYS] = to_record(arrays)
    return reply


def _wrong_shape(reply, message):
    reply.content[ARRAYS] = to_record(
        {k: a.numpy()[..., :1] for k, a in reply.content[ARRAYS].items()}
    )
    return reply


def _nothing(reply, message):
    del reply.content[ARRAYS]
    return reply


def _no_examples(reply, message):
    reply.content[METRICS]["num-examples"] = 0
    return reply


def _huge(reply, message):
    reply.content[ARRAYS] = to_record(
        {k: a.numpy() + 1e9 for k, a in reply.content[ARRAYS].items()}
    )
    return reply


def _no_metrics(reply, message):
    reply.content[METRICS] = MetricRecord()
    return reply


@pytest.mark.parametrize("spoil", [_nan, _wrong_shape, _nothing, _no_examples, _huge, _no_metrics])
def test_a_bad_reply_is_set_aside(small, monkeypatch, spoil):
    poison(monkeypatch, spoil)
    result = run_local({**small, "client-selector": "all"})
    assert result.reason == "completed"
    assert {e["client"] for e in events(result.folder, "quarantined")} == {"0"}
    assert len(events(result.folder, "quarantined")) == 4
    assert np.isfinite(result.rounds[-1]["loss"])


def test_an_exception_in_one_client_costs_only_its_reply(small, monkeypatch):
    from forager.client_app import app

    def broken(batch):
        if "2" in batch.keys:
            raise RuntimeError("out of battery")
        return honest(batch)

    honest = app.HANDLERS["train"]
    monkeypatch.setitem(app.HANDLERS, "train", broken)
    result = run_local({**small, "client-selector": "all"})
    assert result.reason == "completed"
    for exchange in events(result.folder, "exchange"):
        if exchange["kind"] == "train":
            assert exchange["failed"] == {"2": "RuntimeError: out of battery"}
            assert exchange["received"] == 5


def test_all_clients_failing_ends_the_run_with_a_reason(small, monkeypatch):
    from forager.client_app import app

    def broken(batch):
        raise RuntimeError("out of battery")

    monkeypatch.setitem(app.HANDLERS, "train", broken)
    monkeypatch.setattr("forager.server_app.retries._PAUSE", 0.0)
    with pytest.raises(RunFailed, match=r"out of battery"):
        run_local({**small, "round.give-up-after": 1.0, "report": True})
    (folder,) = Path(small["output-dir"]).iterdir()
    assert events(folder, "run-finished")[-1]["reason"] == "failed"
    assert (folder / "report.html").exists()


def test_more_clients_asked_for_than_there_are(small, said):
    result = run_local({**small, "clients-per-round": 50}, quiet=False)
    assert result.rounds[-1]["received"] == 6
    assert "50 clients per round were asked for, 6 are available: training those" in said


def test_bad_settings_are_refused_before_anything_starts(small, tmp_path):
    for key, value, text in (
        ("strategy", "fedavgg", "did you mean 'fedavg'"),
        ("fraction-train", 1.5, "fraction-train = 1.5"),
        ("num-server-rounds", "many", "num-server-rounds = 'many'"),
        ("learning-rte", 0.1, "did you mean 'learning-rate'"),
    ):
        with pytest.raises(ConfigError, match=text):
            run_local({**small, key: value})
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="output-dir"):
        run_local({**small, "output-dir": str(tmp_path / "file" / "runs")})
    assert not (tmp_path / "runs").exists()


def test_a_thousand_clients(small):
    result = run_local({**small, "num-clients": 1000, "clients-per-round": 100, "partition": "iid"})
    assert result.rounds[-1]["received"] == 100


def test_uplink_top_k_sends_less(small):
    dense = run_local(small)
    sparse = run_local({**small, "uplink": "top-k"})
    assert sparse.rounds[-1]["bytes-up"] < 0.2 * dense.rounds[-1]["bytes-up"]


def test_messages_are_answered_even_if_the_kind_is_unknown(small):
    grid = local_grid.LocalGrid(2, {})
    from flwr.app import RecordDict

    question = Message(RecordDict(), dst_node_id=1000, message_type="query.nonsense")
    (reply,) = grid.send_and_receive([question])
    assert reply.has_error()


def test_clients_without_data_fail_and_the_others_go_on(small):
    crowd = {"num-clients": 300, "clients-per-round": 100, "split.alpha": 0.05}
    result = run_local({**small, **crowd, "num-server-rounds": 2})
    (failed, _) = [e["failed"] for e in events(result.folder, "exchange") if e["kind"] == "train"]
    assert failed
    assert all("has no training data" in reason for reason in failed.values())
    assert result.reason == "completed"
    assert 0 < result.rounds[-1]["received"] < 100


def test_tensorboard_files_if_asked_for(small):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    keys = {**small, "callbacks": "tensorboard", "client-selector": "cosage", "uplink": "top-k"}
    result = run_local(keys)
    scalars = EventAccumulator(str(result.folder / "tensorboard")).Reload()
    with (result.folder / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = scalars.Tags()["scalars"]
    assert {"accuracy", "loss", "train-loss", "bytes-up-dense", "bytes-select"} <= set(names)
    assert set(names) == {name for row in rows for name in row if row[name]} - {"round"}
    for name in names:
        told = {event.step: event.value for event in scalars.Scalars(name)}
        assert told == {
            int(row["round"]): pytest.approx(float(row[name]), rel=1e-6)
            for row in rows
            if row[name]
        }


def test_a_run_that_diverges_says_why_and_what_to_do(small, monkeypatch):
    monkeypatch.setattr("forager.server_app.retries._PAUSE", 0.0)
    with pytest.raises(RunFailed) as caught:
        run_local({**small, "model": "mlp", "learning-rate": 1e6})
    text = str(caught.value)
    assert text.startswith("round 1 failed 5 times: no reply could be used, all were set aside")
    assert "update of norm" in text
    assert "lower learning-rate" in text
