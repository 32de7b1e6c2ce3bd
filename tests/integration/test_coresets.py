"""Whole runs that train on coresets, with control variates or with contrast."""

import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from forager.client_app.app import answer_one
from forager.client_app.device.state import ClientState
from forager.core.config import default_config, read_config
from forager.core.learning.gradients import server_targets
from forager.core.learning.model_arrays import read_arrays
from forager.core.tasks import load_task
from forager.core.wire.arrays import to_record
from forager.core.wire.keys import ARRAYS, CONFIG, CORESET, TARGETS
from forager.tools.engine.local import run_local
from forager.tools.engine.local_grid import LocalGrid
from safetensors.numpy import load_file


@pytest.fixture(autouse=True)
def _no_charts(monkeypatch):
    """Drawing them takes most of the time of a small run."""
    monkeypatch.setattr("forager.tools.report.write_report", lambda folder: None)


@pytest.fixture
def small(tmp_path):
    return {
        "output-dir": str(tmp_path / "runs"),
        "num-server-rounds": 6,
        "num-clients": 6,
        "clients-per-round": 4,
        "noise": "closed-set",
        "coreset.every": 3,
        "coreset.budget": 0.2,
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def same_model(a, b):
    left, right = (load_file(r.folder / "model.safetensors") for r in (a, b))
    return all(np.array_equal(left[name], right[name]) for name in left)


STACKS = [
    {"strategy": "trusted"},
    {"strategy": "gcfl"},
    {
        "strategy": "trusted",
        "uplink": "top-k",
        "client-selector": "cosage",
        "aggregator": "fedyogi",
    },
    {"data-selector": "crust", "coreset.use-weights": True, "fine-tune.epochs": 1},
    {"strategy": "gcfl", "objective": "scaffold", "coreset.use-weights": True},
    {"strategy": "moon", "model": "mlp", "data-selector": "facility-location"},
    {"strategy": "scaffold", "uplink": "top-k", "momentum": 0.9},
]


@pytest.mark.parametrize("stack", STACKS)
def test_a_resumed_run_equals_one_never_stopped_by_wire(small, stack):
    settings = {**small, **stack, "local.check-wire": True}
    whole = run_local(settings)
    half = run_local({**settings, "num-server-rounds": 3})
    resumed = run_local({**settings, "resume-from": str(half.folder)})
    assert not events(whole, "quarantined")
    assert same_model(whole, resumed)
    assert [r["loss"] for r in whole.rounds] == [r["loss"] for r in resumed.rounds]
    told = [
        [(e["chose"], e["sizes"], e["guidance-bytes"]) for e in events(r, "coresets")]
        for r in (whole, resumed)
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("stack", STACKS[4:])
def test_stacked_clients_train_as_one_by_one(small, stack):
    stacked, serial = (
        run_local({**small, **stack, "local.trainer": how, "num-server-rounds": 3})
        for how in ("auto", "serial")
    )
    left, right = (load_file(r.folder / "model.safetensors") for r in (stacked, serial))
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=1e-3, atol=1e-5)


def test_the_methods_differ_and_the_clean_samples_are_found(small):
    settings = {**small, "client-selector": "all", "partition": "iid"}
    shares = {}
    for name in ("random", "gcfl", "nearest", "trusted", "skyline"):
        result = run_local({**settings, "data-selector": name})
        shares[name] = events(result, "coresets")[-1]["clean-share"]
    assert shares["skyline"] == 1.0
    assert shares["nearest"] > 0.9 > shares["gcfl"] > shares["random"]
    assert shares["trusted"] > shares["random"] + 0.1


def test_guidance_is_counted_apart_and_travels_only_when_it_is_needed(small):
    guided = run_local({**small, "strategy": "trusted", "client-selector": "all"})
    alone = run_local({**small, "data-selector": "random", "client-selector": "all"})
    sent = [e["guidance-bytes"] for e in events(guided, "coresets")]
    each = 10 * (65 + 3) * 4  # classes times neuron, bias and three standards; bytes
    assert sent == [0, 6 * each, 0, 0, 6 * each, 0]
    more = [
        g["bytes-down"] - a["bytes-down"]
        for g, a in zip(guided.rounds[1:], alone.rounds[1:], strict=True)
    ]
    assert more == sent


def test_a_first_choice_at_once_is_the_papers_algorithm(small):
    result = run_local({**small, "strategy": "trusted", "coreset.first-round": 0})
    assert events(result, "coresets")[0]["chose"] == 4


def test_cosage_tastes_the_coreset(small):
    plain = {**small, "strategy": "cosage", "data-selector": "trusted"}
    result = run_local(plain)
    assert result.reason == "completed"
    assert {e["kind"] for e in events(result, "exchange")} >= {"query.summary", "train"}


def test_cohorts_choose_coresets_of_their_own(small):
    result = run_local({**small, "strategy": "split-test", "data-selector": "trusted"})
    assert result.reason == "completed"
    assert not events(result, "quarantined")
    assert sum(e["chose"] for e in events(result, "coresets")) >= 4


def test_fine_tuning_trains_on_the_servers_samples(small):
    plain = run_local({**small, "strategy": "fedavg"})
    tuned = run_local({**small, "strategy": "fedavg", "fine-tune.epochs": 2})
    assert len(events(tuned, "fine-tuned")) == 6
    assert tuned.rounds[-1]["loss"] < plain.rounds[-1]["loss"]


def test_bad_settings_are_refused_before_anything_starts(small):
    for more in ({"model": "mlp", "data.validation-share": 1e-9}, {"task": "digits2"}):
        with pytest.raises(ValueError, match=r"validation-share|task"):
            run_local({**small, "strategy": "trusted", **more})
    assert not Path(small["output-dir"]).exists()


class Device:
    """A device: every message is answered by a new process, with nothing but its own files."""

    def __init__(self, folder, samples):
        LocalGrid(1, {})  # Flower's messages need somebody's identity
        self.node = {"state-dir": str(folder / "state"), "data-path": str(folder / "mine.npz")}
        self.settings = {
            **default_config(),
            "strategy": "trusted",
            "objective": "scaffold",
            "data.num-classes": 10,
        }
        self.folder = folder
        self.hold(samples)

    def hold(self, samples):
        data = load_task(read_config({}).task_spec()).client_data(0, 2).train
        x, y = data.x[:samples].numpy(), data.y[:samples].numpy()
        np.savez(self.folder / "mine.npz", x_train=x, y_train=y)
        load_task.cache_clear()  # a new process has read nothing yet

    def train(self, number, guided=False):
        task = load_task(read_config({}).task_spec())
        arrays = read_arrays(task.build_model())
        content = {ARRAYS: to_record(arrays), CONFIG: ConfigRecord({"server-round": number})}
        if guided:
            model, data = task.build_model(), task.server_data().validation
            content[TARGETS] = to_record({"means": server_targets(model, arrays, data, True)})
        message = Message(RecordDict(content), dst_node_id=7, message_type="train")
        context = Context(1, 7, self.node, RecordDict(), self.settings)
        reply = answer_one(message, context)
        assert not reply.has_error(), reply.error
        return dict(reply.content[CORESET]), ClientState(context)


def test_a_device_keeps_its_coreset_and_its_variate_on_disk(tmp_path):
    device = Device(tmp_path, samples=300)
    told, state = device.train(2, guided=True)
    assert told.keys() == {"round", "size", "seconds"}  # what is clean, nobody knows
    assert (told["round"], told["size"]) == (2, 30)
    chosen, variate = state["coreset"]["indices"], state["control"]["1.bias"]
    told, state = device.train(3)
    assert told["round"] == 2
    assert np.array_equal(state["coreset"]["indices"], chosen)
    assert np.abs(variate).sum() > 0

    device.hold(samples=120)  # some are gone: the coreset too
    told, state = device.train(4)
    assert (told["round"], told["size"]) == (0, 12)
    assert "coreset" not in state
    told, state = device.train(5, guided=True)
    assert (told["round"], told["size"]) == (5, 12)
    assert state["coreset"]["indices"].max() < 120
