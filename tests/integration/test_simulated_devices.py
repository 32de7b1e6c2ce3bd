"""Devices that are slow, or not there, on the local engine's simulated clock."""

import json

import numpy as np
import pytest
from flwr.app import Error, Message
from forager.client_app import app
from forager.core.config import ConfigError
from forager.strategies.federation.federation import Federation
from forager.tools.engine.local import run_local


@pytest.fixture
def small(tmp_path):
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "num-server-rounds": 4,
        "num-clients": 20,
        "clients-per-round": 8,
        "devices.slow": True,
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def trainings(result):
    return [e for e in events(result, "exchange") if e["kind"] == "train"]


def test_rounds_take_as_long_as_the_slowest_device(small):
    alike = trainings(run_local({**small, "devices.spread": 0.0}))
    unlike = trainings(run_local({**small, "devices.spread": 1.0}))
    assert all(e["simulated-seconds"] > 0 for e in alike + unlike)
    mean = [np.mean([e["simulated-seconds"] for e in rounds]) for rounds in (alike, unlike)]
    assert mean[1] > mean[0]


def test_the_slowest_devices_are_named(small):
    rounds = trainings(run_local(small))
    for e in rounds:
        told = e["reply-seconds"]
        assert len(told["slowest"]) == 3
        assert max(told["slowest"].values()) == pytest.approx(e["simulated-seconds"])
        assert min(told["slowest"].values()) >= told["median"] > 0
    at_once = trainings(run_local({**small, "devices.slow": False}))
    assert not any("reply-seconds" in e for e in at_once)  # all answer together


def test_over_commitment_does_not_wait_for_the_slowest(small):
    patient = trainings(run_local(small))
    hasty = trainings(run_local({**small, "round.over-commit": 0.5}))
    assert [e["received"] for e in hasty] == [8] * 4
    assert [len(e["late"]) for e in hasty] == [4] * 4
    waits = [sum(e["simulated-seconds"] for e in rounds) for rounds in (patient, hasty)]
    assert waits[1] < waits[0]


def test_questions_take_time_as_well(small):
    """A forward pass is a third of a training; transfer takes next to nothing here."""
    keys = {"devices.spread": 0.0, "devices.seconds-per-sample": 1.0, "partition": "iid"}
    keys |= {"devices.bytes-per-second": 1e12, "num-server-rounds": 1, "local-epochs": 3}
    keys |= {"cohort.number": 3, "batch-size": 5}
    keys |= {"round.question-deadline": 600.0}
    seconds = {}
    for rule in ("ifca", "flexcfl"):
        found = events(run_local({**small, **keys, "cohorts": rule}), "exchange")
        seconds |= {e["kind"]: e["simulated-seconds"] for e in found}
    one_epoch = seconds["train"] / 3
    assert seconds["query.losses"] == pytest.approx(one_epoch, rel=0.02)  # of three models
    assert seconds["query.update"] == pytest.approx(50 * 5)


def test_clients_come_and_go_by_a_trace(small, tmp_path, monkeypatch):
    monkeypatch.setattr("forager.server_app.retries._PAUSE", 0.0)  # the clock is simulated
    # Even clients are there in the first half of every 100 seconds, odd ones in the second.
    owner = np.arange(20)
    trace = {"owner": owner, "start": owner % 2 * 50.0, "end": owner % 2 * 50.0 + 50.0}
    np.savez(tmp_path / "trace.npz", **trace, period=100.0)
    keys = {"devices.availability": str(tmp_path / "trace.npz"), "num-server-rounds": 30}
    keys |= {"devices.seconds-per-sample": 0.1, "devices.spread": 0.2}
    result = run_local({**small, **keys})
    assert result.reason == "completed"
    halves = [{int(key) % 2 for key in e["chosen"]} for e in events(result, "selected")]
    assert all(len(half) == 1 for half in halves)
    assert {0} in halves
    assert {1} in halves
    assert any(
        "left before" in reason for e in trainings(result) for reason in e["failed"].values()
    )


def test_day_and_night_repeats_and_resumes(small):
    keys = {**small, "devices.availability": "day-night", "num-server-rounds": 6}
    whole = run_local({**keys, "run-name": "whole"})
    part = run_local({**keys, "num-server-rounds": 3, "run-name": "part"})
    resumed = run_local({**keys, "resume-from": str(part.folder)})
    model = "model.safetensors"
    assert (resumed.folder / model).read_bytes() == (whole.folder / model).read_bytes()


def test_a_trace_that_cannot_be_read_is_named(small):
    with pytest.raises(ConfigError, match=r"devices.availability = 'nowhere.npz'"):
        run_local({**small, "devices.availability": "nowhere.npz"})


@pytest.mark.parametrize("selector", ["random", "power-of-choice"])
def test_who_is_always_later_than_the_deadline_is_asked_ever_less_often(
    small, selector, monkeypatch
):
    """Two of twenty never make it; those who answer questions quickly are no exception."""
    ask = Federation.ask

    def ask_all(self, *args):
        self.quorum = 1.0  # all answers are waited for
        return ask(self, *args)

    monkeypatch.setattr(Federation, "ask", ask_all)
    small |= {"num-server-rounds": 60, "evaluate-every": 60, "checkpoint.every": 0}
    small |= {"client-selector": selector, "clients.at-most": 9.0, "partition": "iid"}
    keys = {"clients-per-round": 20, "num-server-rounds": 1}
    told = trainings(run_local({**small, **keys}))[0]["reply-seconds"]
    slowest = sorted(told["slowest"].values())
    deadline = {"round.deadline": (slowest[0] + slowest[1]) / 2}
    rounds = trainings(run_local({**small, **deadline}))
    late = [len(e["late"]) for e in rounds]
    assert sum(late[:20]) >= 4
    assert sum(late[40:]) <= 3
    assert {client for e in rounds for client in e["late"]} <= set(told["slowest"])
    longest = max(e["simulated-seconds"] for e in rounds)
    assert longest == pytest.approx(deadline["round.deadline"], rel=1e-12)
    assert all(e["sent"] == 8 for e in rounds)


def test_over_commitment_asks_as_many_more_as_are_likely_to_fail(small, monkeypatch):
    """Half of the clients always fail: with a tenth more than wanted a round would be short."""
    handle = app.HANDLERS["train"]

    def half_fail(batch):
        replies = list(handle(batch))
        for i, context in enumerate(batch.contexts):
            if context.node_config["partition-id"] % 2:
                replies[i] = Message(Error(0, "no power"), reply_to=batch.requests[i])
        return replies

    monkeypatch.setitem(app.HANDLERS, "train", half_fail)
    keys = {"round.over-commit": 0.1, "num-server-rounds": 40, "clients-per-round": 4}
    keys |= {"evaluate-every": 40, "checkpoint.every": 0}
    rounds = trainings(run_local({**small, **keys}))
    assert rounds[0]["sent"] == 5
    assert all(6 <= e["sent"] <= 10 for e in rounds[25:])
    plain = trainings(run_local({**small, **keys, "round.over-commit": 0.0}))
    received = [np.mean([e["received"] for e in some[25:]]) for some in (plain, rounds)]
    assert received[1] > received[0] + 1
    assert all(e["sent"] == 4 for e in plain)


def test_what_is_known_of_response_times_is_resumed(small):
    small |= {"num-server-rounds": 6, "round.deadline": 6.0, "round.over-commit": 0.2}
    whole = run_local(small)
    assert any(e["late"] for e in trainings(whole))
    half = run_local({**small, "num-server-rounds": 3})
    resumed = run_local({**small, "resume-from": str(half.folder)})
    assert [e["chosen"] for e in events(resumed, "selected")] == [
        e["chosen"] for e in events(whole, "selected")
    ]


def test_a_learned_deadline_ends_rounds_sooner_and_is_resumed(small):
    small |= {"num-server-rounds": 12, "clients-per-round": 10, "devices.spread": 2.0}
    patient = trainings(run_local(small))
    whole = run_local({**small, "round.deadline": "auto"})
    learned = trainings(whole)
    assert all(e.get("deadline") is None for e in patient)
    assert learned[0]["deadline"] == 600.0, "nothing is known yet"
    assert any(e["late"] for e in learned)
    assert all(e["simulated-seconds"] <= e["deadline"] * (1 + 1e-9) for e in learned)
    spent = [sum(e["simulated-seconds"] for e in some[1:]) for some in (patient, learned)]
    assert spent[1] < spent[0] / 2
    half = run_local({**small, "round.deadline": "auto", "num-server-rounds": 6})
    resumed = run_local({**small, "round.deadline": "auto", "resume-from": str(half.folder)})
    assert [e["deadline"] for e in trainings(resumed)] == [e["deadline"] for e in learned]
