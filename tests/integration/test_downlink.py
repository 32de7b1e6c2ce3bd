"""Runs in which clients are sent changes: the same model, for fewer bytes."""

import json

import pytest
from forager.client_app import app
from forager.tools.engine.local import run_local

EVALUATED = {"fraction-evaluate": 1.0, "data.client-test-share": 0.2}
RUNS = {
    "fedavg": {"clients-per-round": 0, "fraction-train": 1.0, "model": "mlp"},
    "some clients": {"model": "mlp"},
    "evaluation on clients": EVALUATED,
    "cosage": {"strategy": "cosage", **EVALUATED},
    "cosage, dense": {"strategy": "cosage", "uplink": "dense"},
    "split-test": {"strategy": "split-test", "num-clients": 20, "clients-per-round": 10},
    "ifca": {"cohorts": "ifca"},
    "scaffold": {"strategy": "scaffold"},
    "trusted": {"strategy": "trusted"},
    "buffer": {"aggregation.buffer": 2},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def small(tmp_path, cache):
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "data.cache-dir": cache,
        "num-server-rounds": 4,
        "num-clients": 8,
        "clients-per-round": 4,
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def of_kind(result, kind):
    return [e for e in events(result, "exchange") if e["kind"] == kind]


def last_model(result):
    return (result.folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", RUNS)
def test_the_same_model_comes_of_fewer_bytes(small, name):
    settings = {**small, **RUNS[name]}
    whole = run_local(settings)
    changes = run_local({**settings, "downlink": "changes"})
    by_wire = run_local({**settings, "downlink": "changes", "local.check-wire": True})
    assert last_model(whole) == last_model(changes) == last_model(by_wire)
    for result in (changes, by_wire):
        exchanges = events(result, "exchange")
        assert [(e["kind"], e["received"]) for e in exchanges] == [
            (e["kind"], e["received"]) for e in events(whole, "exchange")
        ]
        assert not any(e["resent"] or e["failed"] for e in exchanges)
        assert not events(result, "quarantined")
        down = [sum(e["bytes-down"] for e in events(r, "exchange")) for r in (result, whole)]
        assert down[0] < down[1]
    assert [row["bytes-down"] for row in changes.rounds[1:]] == [
        row["bytes-down"] for row in by_wire.rounds[1:]
    ]
    assert of_kind(changes, "train")[-1]["bytes-spared"] > 0
    if "fraction-evaluate" in settings:
        # Who has evaluated a model holds it already when it trains from it.
        assert of_kind(changes, "train")[-1]["bytes-down"] < 1000
        assert of_kind(changes, "evaluate")[-1]["bytes-spared"] > 0


def test_a_dense_model_comes_in_three_quarters_of_its_bytes(small):
    settings = {**small, **RUNS["fedavg"]}
    whole, changes = (run_local({**settings, "downlink": how}) for how in ("whole", "changes"))
    rows = zip(changes.rounds[2:], whole.rounds[2:], strict=True)
    assert all(less["bytes-down"] < 0.75 * more["bytes-down"] for less, more in rows)


@pytest.fixture
def restarted(monkeypatch):
    """Clients lose what they keep when they are to train from it in round 3."""
    handle, lost = app.HANDLERS["train"], []

    def forgetful(batch):
        for message, context in zip(batch.requests, batch.contexts, strict=True):
            if batch.round == 3 and "arrays" not in message.content:
                context.memory.clear()
                lost.append(context.node_id)
        return handle(batch)

    monkeypatch.setitem(app.HANDLERS, "train", forgetful)
    return lost


@pytest.mark.parametrize("more", [{}, EVALUATED])
def test_clients_that_restart_get_the_whole_model_in_the_same_round(small, restarted, more):
    settings = {**small, "client-selector": "all", "model": "mlp", **more}
    honest = run_local(settings)
    result = run_local({**settings, "downlink": "changes"})
    assert len(restarted) == 8
    assert [e["resent"] for e in of_kind(result, "train")] == [0, 0, 8, 0]
    assert not events(result, "quarantined")
    assert last_model(result) == last_model(honest)


def test_clients_that_restart_train_for_a_later_buffer(small, restarted):
    buffered = {**small, "client-selector": "all", "model": "mlp", "aggregation.buffer": 4}
    result = run_local({**buffered, "num-server-rounds": 6, "downlink": "changes"})
    trainings = of_kind(result, "train")
    assert len(restarted) == 4
    assert sum(e["resent"] for e in trainings) == 4
    assert [e["received"] for e in trainings] == [4] * 6
    assert not events(result, "quarantined")


def test_a_resumed_run_begins_with_whole_models(small):
    settings = {**small, "client-selector": "all", "downlink": "changes"}
    never_stopped = run_local(settings)
    half = run_local({**settings, "num-server-rounds": 2})
    resumed = run_local({**settings, "resume-from": str(half.folder)})
    assert last_model(resumed) == last_model(never_stopped)
    trainings = of_kind(resumed, "train")
    assert [e["bytes-spared"] > 0 for e in trainings] == [False, True, False, True]
    assert not any(e["resent"] for e in trainings)


def test_a_run_may_be_resumed_with_the_other_downlink(small):
    half = run_local({**small, "num-server-rounds": 2})
    changes = {**small, "downlink": "changes"}
    resumed = run_local({**changes, "resume-from": str(half.folder)})
    assert last_model(resumed) == last_model(run_local(small))


def test_on_slow_devices_fewer_bytes_take_less_time(small):
    slow = {
        **small,
        "client-selector": "all",
        "model": "mlp",
        "devices.slow": True,
        "devices.spread": 0.0,
        "devices.bytes-per-second": 1000.0,
    }
    whole, changes = (run_local({**slow, "downlink": how}) for how in ("whole", "changes"))
    assert last_model(whole) == last_model(changes)
    seconds = [of_kind(r, "train")[-1]["simulated-seconds"] for r in (whole, changes)]
    assert seconds[1] < seconds[0]
