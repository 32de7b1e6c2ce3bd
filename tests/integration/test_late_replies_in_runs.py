"""Slow devices whose replies come after their round, on the local engine's simulated clock."""

import json
from collections import Counter
from typing import Any

import pytest
from forager.core.config import ConfigError, read_config
from forager.core.storage import tree
from forager.tools.engine.local import run_local

RULES: dict[str, dict[str, Any]] = {
    "split-test": {"cohorts": "split-test", "split-test.parts": 1},
    "cosage": {"client-selector": "cosage", "summary.mode": "piggyback", "uplink": "top-k"},
    "oort": {"client-selector": "oort"},
}


@pytest.fixture
def slow(tmp_path):
    """Six clients are asked, the first four to answer are enough."""
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "num-server-rounds": 8,
        "num-clients": 12,
        "clients-per-round": 4,
        "round.over-commit": 0.5,
        "devices.slow": True,
        "evaluate-every": 8,
        "model": "softmax",
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def came_late(result):
    return [
        (e["round"], e["client"], e["asked-in"], e["seconds"]) for e in events(result, "late-reply")
    ]


def last_state(result):
    return tree.load(max((result.folder / "checkpoints").iterdir()), "checkpoint")["strategy"]


def within(state, name):
    """The first entry of that name, however deep."""
    if isinstance(state, dict):
        if name in state:
            return state[name]
        state = list(state.values())
    found = (within(part, name) for part in state) if isinstance(state, list) else ()
    return next((part for part in found if part is not None), None)


@pytest.mark.parametrize("rule", RULES)
def test_late_replies_teach_and_repeat(slow, rule):
    result = run_local({**slow, **RULES[rule]})
    assert result.reason == "completed"
    heard = came_late(result)
    assert len(heard) >= 5
    assert max(Counter((client, asked) for _, client, asked, _ in heard).values()) == 1
    trained = {e["round"]: e for e in events(result, "exchange") if e["kind"] == "train"}
    for now, client, asked, seconds in heard:
        assert client in trained[asked]["late"]
        passed = [trained[number]["simulated-seconds"] for number in range(asked, now)]
        assert passed[0] < seconds <= sum(passed), "it comes when its time has come"
    assert not events(result, "quarantined")
    assert came_late(run_local({**slow, **RULES[rule]})) == heard
    state = last_state(result)
    if rule == "split-test":
        evidence = within(state, "evidence")
        seen = set(zip(evidence["keys"], evidence["rounds"], strict=True))
        assert {(client, asked) for _, client, asked, _ in heard} <= seen
        assert len(seen) == len(evidence["keys"])
        return
    name = {"cosage": "similarity", "oort": "utility"}[rule]
    memory = within(state, "memory")
    for _, client, asked, _ in heard:
        if rule == "oort" or asked > 1:  # in the first round there is nothing to be similar to
            assert client in memory["answers"][name]
            assert memory["told-in"][name][client] >= asked
    known = within(state, "times")["seconds"]
    assert {client for _, client, _, _ in heard} <= known.keys()


def test_what_is_on_its_way_when_a_run_is_stopped_comes_after_it_is_resumed(slow):
    slow |= {"num-server-rounds": 6, "client-selector": "oort"}
    whole = run_local(slow)
    half = run_local({**slow, "num-server-rounds": 3})
    resumed = run_local({**slow, "resume-from": str(half.folder)})
    assert any(now > 3 >= asked for now, _, asked, _ in came_late(whole))
    assert [late[:3] for late in came_late(resumed)] == [late[:3] for late in came_late(whole)]
    # A resumed run asks for names again, so that its clock counts from another moment.
    seconds = [late[3] for late in came_late(whole)]
    assert [late[3] for late in came_late(resumed)] == pytest.approx(seconds, rel=1e-12)
    model = "model.safetensors"
    assert (resumed.folder / model).read_bytes() == (whole.folder / model).read_bytes()


OPEN: dict[str, dict[str, Any]] = {
    "random": {},
    "top-k": {"client-selector": "cosage", "uplink": "top-k", "aggregator": "fedyogi"},
    "split-test": {"cohorts": "split-test", "split-test.first-split": 2},
    "auxo": {"strategy": "auxo", "auxo.first-split": 2, "auxo.min-participants": 1},
    "ios": {"strategy": "ios", "ios.every": 2, "aggregator": "fedyogi"},
    "ode": {"strategy": "ode", "stream.capacity": 5},
    "by wire": {"local.check-wire": True, "downlink": "changes"},
}


def outcomes(result):
    """What exchanges brought; who resumes a run asks clients for their names again."""
    keys = ("round", "kind", "sent", "received", "late", "bytes-up")
    asked = [e for e in events(result, "exchange") if e["kind"] != "query.identify"]
    return [[e.get(key) for key in keys] for e in asked]


@pytest.mark.parametrize("rule", OPEN)
def test_a_buffered_run_is_resumed_with_those_who_still_train(slow, rule):
    slow |= {"round.over-commit": 0.0, "clients-per-round": 6, "aggregation.buffer": 3}
    slow |= {"num-server-rounds": 6, "devices.spread": 1.5, **OPEN[rule]}
    whole = run_local(slow)
    half = run_local({**slow, "num-server-rounds": 3})
    resumed = run_local({**slow, "resume-from": str(half.folder)})
    trained = [e for e in events(whole, "exchange") if e["kind"] == "train"]
    assert [e["received"] for e in trained] == [3] * 6
    assert [e["sent"] for e in trained] == [6] + [3] * 5, "three still train when it is stopped"
    assert outcomes(resumed) == outcomes(whole)
    model = "model.safetensors"
    assert (resumed.folder / model).read_bytes() == (whole.folder / model).read_bytes()


def test_what_comes_after_the_deadline_teaches_for_as_long_again(slow):
    slow |= {"round.over-commit": 0.0, "clients-per-round": 12, "partition": "iid"}
    took = events(run_local({**slow, "num-server-rounds": 1}), "exchange")[-1]["reply-seconds"]
    deadline = min(took["slowest"].values()) / 1.1
    result = run_local({**slow, "round.deadline": deadline})
    heard = came_late(result)
    assert heard
    assert all(deadline < seconds <= 2 * deadline for _, _, _, seconds in heard)
    known = within(last_state(result), "times")
    for _, client, asked, seconds in heard:
        # They are asked again, and are late again, before their replies come.
        assert known["guesses"].get(client, known["seconds"][client]) == pytest.approx(seconds)
        assert known["measured"][client] >= asked
        assert known["failures"][client] > 0


COUNTED: dict[str, dict[str, Any]] = {
    "random": {},
    "top-k": {"uplink": "top-k", "aggregator": "median"},
    "split-test": {"cohorts": "split-test", "split-test.first-split": 2},
    "ios": {"strategy": "ios", "ios.every": 1},
    "by wire": {"local.check-wire": True, "downlink": "changes", "uplink": "int8"},
}


@pytest.mark.parametrize("rule", COUNTED)
def test_late_updates_count_where_the_user_says_so_and_exactly_after_a_resume(slow, rule):
    slow |= {"num-server-rounds": 6, **COUNTED[rule]}
    model = "model.safetensors"
    ignored = run_local({**slow, "run-name": "ignored"})
    slow["aggregation.late"] = True
    whole = run_local({**slow, "run-name": "whole"})
    assert came_late(whole)
    assert not events(whole, "quarantined")
    assert (whole.folder / model).read_bytes() != (ignored.folder / model).read_bytes()
    half = run_local({**slow, "num-server-rounds": 3, "run-name": "half"})
    resumed = run_local({**slow, "resume-from": str(half.folder)})
    assert any(now > 3 >= asked for now, _, asked, _ in came_late(whole))
    assert (resumed.folder / model).read_bytes() == (whole.folder / model).read_bytes()


def test_a_late_update_counts_less_the_older_it_is(slow):
    slow |= {"num-server-rounds": 6, "aggregation.late": True}
    models = {}
    for exponent in (0.0, 60.0):
        result = run_local({**slow, "aggregation.staleness": exponent})
        models[exponent] = (result.folder / "model.safetensors").read_bytes()
    assert models[0.0] != models[60.0]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"objective": "scaffold"}, "objective = 'scaffold' cannot use updates"),
        ({"privacy": "central-dp"}, "privacy = 'central-dp' cannot use updates"),
        (
            {"aggregation.buffer": 2},
            "aggregation.buffer = 2: no update is late",
        ),
    ],
    ids=str,
)
def test_late_updates_are_refused_where_rounds_must_end_together(more, named):
    with pytest.raises(ConfigError, match=named):
        read_config({"aggregation.late": True, **more})
