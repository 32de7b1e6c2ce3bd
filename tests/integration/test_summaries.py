"""Selectors that ask clients first, on the local engine and by wire."""

import json
from functools import partial

import numpy as np
import pytest
from flwr.app import Error, Message, MetricRecord, RecordDict
from forager.client_app import app
from forager.client_app.device import held_models
from forager.core.methods.catalogue import methods
from forager.server_app.exchange import ShortForm
from forager.strategies.federation.questions import Questions
from forager.strategies.layers import selection
from forager.tools.engine.local import run_local


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
        "clients-per-round": 2,
        "partition": "shards",
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


@pytest.mark.parametrize("name", methods("client-selector"))
def test_every_selector_runs_by_wire(small, name):
    result = run_local({**small, "client-selector": name, "local.check-wire": True})
    assert result.reason == "completed"
    counts = [len(e["chosen"]) for e in events(result, "selected")]
    assert counts == [8 if name == "all" else 2] * 4
    assert not events(result, "quarantined")


def test_the_preset_is_the_papers_method(small):
    result = run_local({**small, "strategy": "cosage"})
    config = json.loads((result.folder / "config.json").read_text())
    assert (config["client-selector"], config["uplink"], config["weighting"]) == (
        "cosage",
        "top-k-plain",
        "uniform",
    )
    asked = [e for e in events(result, "exchange") if e["kind"] == "query.summary"]
    # In the first round there is no update yet that a client could be similar to.
    assert [(e["round"], e["sent"], e["received"]) for e in asked] == [(r, 8, 8) for r in (2, 3, 4)]
    assert all(e["bytes-up"] < 8 * 50 for e in asked)
    scores = [s for e in events(result, "selected")[1:] for s in e["scores"]]
    assert all(-1 <= score <= 1 for score in scores)
    assert len(set(scores)) > 1


def last_model(result):
    return (result.folder / "model.safetensors").read_bytes()


def trainings(result):
    return [e for e in events(result, "exchange") if e["kind"] == "train"]


def queries(result):
    asked = [e for e in events(result, "exchange") if e["kind"] == "query.summary"]
    return [(e["round"], e["sent"], e["received"]) for e in asked]


@pytest.mark.parametrize("selector", ["cosage", "local-loss"])
def test_who_holds_the_last_model_is_sent_only_what_changed(small, monkeypatch, selector):
    settings = {**small, "strategy": "cosage", "client-selector": selector}
    short = run_local({**settings, "local.check-wire": True})
    monkeypatch.setattr(selection, "Questions", partial(Questions, resend=True))
    whole = run_local(settings)
    # The very same similarities and losses: nothing is lost on the way.
    assert [(e["chosen"], e["scores"]) for e in events(short, "selected")] == [
        (e["chosen"], e["scores"]) for e in events(whole, "selected")
    ]
    assert queries(short) == queries(whole)
    first = 2 if selector == "cosage" else 1  # the first question is about a model nobody holds
    bytes_short, bytes_whole = (
        [row["bytes-select"] for row in result.rounds[1:]] for result in (short, whole)
    )
    assert bytes_short[:first] == pytest.approx(bytes_whole[:first], rel=0.01)
    share = 0.5 if selector == "cosage" else 0.7  # of the entries, few clients change all
    pairs = zip(bytes_short[first:], bytes_whole[first:], strict=True)
    assert all(less < share * more for less, more in pairs)


def test_who_has_lost_the_last_model_is_sent_it_whole(small, monkeypatch):
    settings = {**small, "strategy": "cosage"}
    honest = run_local(settings)
    hold = held_models.hold

    def forgetful(model, context):
        if context.node_config["partition-id"] != 3:
            hold(model, context)

    monkeypatch.setattr(held_models, "hold", forgetful)
    result = run_local(settings)
    assert [e["chosen"] for e in events(result, "selected")] == [
        e["chosen"] for e in events(honest, "selected")
    ]
    # Where it was chosen after a question, the server has learnt that it keeps nothing.
    resent = {
        e["round"]: e.get("resent", 0) for e in events(result, "exchange") if e["kind"] == "train"
    }
    chosen = {e["round"]: "3" in e["chosen"] for e in events(result, "selected")}
    assert resent == {r: int(chosen[r] and r > 1) for r in chosen}
    assert 1 in resent.values()
    again = [1 for r in (2, 3) if not chosen[r]]
    assert len(queries(result)) == 3 + len(again)
    assert not events(result, "quarantined")
    assert result.rounds[3]["bytes-select"] > honest.rounds[3]["bytes-select"]


@pytest.mark.parametrize("selector", ["cosage", "power-of-choice"])
@pytest.mark.parametrize("wire", [False, True])
def test_who_is_chosen_is_not_sent_the_model_that_it_holds(small, monkeypatch, selector, wire):
    settings = {**small, "strategy": "cosage", "client-selector": selector}
    short = run_local({**settings, "local.check-wire": wire})
    monkeypatch.setattr(ShortForm, "_shorten", lambda *_: None)
    whole = run_local(settings)
    assert last_model(short) == last_model(whole)
    first = 2 if selector == "cosage" else 1
    for less, more in zip(trainings(short), trainings(whole), strict=True):
        spared = less.get("bytes-spared", 0)
        if less["round"] < first:
            assert spared == 0
        else:
            assert spared == 2 * 4 * 10 * 65
            assert less["bytes-down"] < 0.1 * more["bytes-down"]
        assert less["received"] == more["received"] == 2


def test_who_lost_the_model_on_a_restart_trains_in_the_same_round(small, monkeypatch):
    """All clients forget between the question of round 3 and its training."""
    honest = run_local({**small, "strategy": "cosage"})
    handle = app.HANDLERS["train"]

    def restarted(batch):
        for context in batch.contexts if batch.round == 3 else ():
            context.memory.clear()
        return handle(batch)

    monkeypatch.setitem(app.HANDLERS, "train", restarted)
    result = run_local({**small, "strategy": "cosage"})
    assert [e["resent"] for e in trainings(result)] == [0, 0, 2, 0]
    assert [e["received"] for e in trainings(result)] == [2, 2, 2, 2]
    assert not events(result, "quarantined")
    assert last_model(result) == last_model(honest)


def test_who_claims_to_lack_what_it_was_sent_in_full_is_set_aside(small, monkeypatch):
    handle = app.HANDLERS["train"]

    def lying(batch):
        replies = list(handle(batch))
        for reply, context in zip(replies, batch.contexts, strict=True):
            if context.node_config["partition-id"] == 3:
                reply.content = RecordDict(
                    {"metrics": MetricRecord({"num-examples": 1, "lacks-base": 1})}
                )
        return replies

    monkeypatch.setitem(app.HANDLERS, "train", lying)
    result = run_local({**small, "strategy": "cosage", "num-server-rounds": 6})
    assert {e["client"] for e in events(result, "quarantined")} == {"3"}
    assert result.reason == "completed"


def test_who_claims_to_lack_a_model_it_was_sent_is_set_aside(small, monkeypatch):
    def change(reply, message):
        del reply.content["metrics"]["similarity"]
        reply.content["metrics"]["lacks-base"] = 1
        return reply

    spoil_summaries(monkeypatch, change)
    result = run_local({**small, "strategy": "cosage"})
    assert {e["client"] for e in events(result, "quarantined")} == {"3"}
    assert queries(result)[:2] == [(2, 8, 8), (2, 1, 1)]


def test_ages_grow_until_a_client_is_chosen(small):
    result = run_local({**small, "client-selector": "aoi"})
    chosen = [e["chosen"] for e in events(result, "selected")]
    assert sorted(key for keys in chosen for key in keys) == list("01234567")
    assert [e["ages"] for e in events(result, "selected")] == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_the_cooldown_keeps_the_youngest_from_being_asked(small):
    result = run_local({**small, "strategy": "cosage", "cosage.silent-ratio": 0.5})
    asked = [e["sent"] for e in events(result, "exchange") if e["kind"] == "query.summary"]
    assert asked == [6, 4, 4]


def test_no_more_are_asked_than_allowed(small):
    result = run_local({**small, "strategy": "cosage", "summary.ask-at-most": 3})
    asked = [e["sent"] for e in events(result, "exchange") if e["kind"] == "query.summary"]
    assert asked == [3, 3, 3]


def test_piggybacked_summaries_cost_no_query(small):
    result = run_local({**small, "strategy": "cosage", "summary.mode": "piggyback"})
    kinds = {e["kind"] for e in events(result, "exchange")}
    assert kinds == {"query.identify", "train"}
    assert any(s not in (-1.0, 0.0) for e in events(result, "selected") for s in e["scores"]) or (
        len({k for e in events(result, "selected") for k in e["chosen"]}) == 8
    )


def spoil_summaries(monkeypatch, change):
    """Let ``change`` answer for client 3."""
    honest = app.HANDLERS["query.summary"]

    def answer(batch):
        rows = zip(honest(batch), batch.requests, batch.keys, strict=True)
        return [change(reply, message) if key == "3" else reply for reply, message, key in rows]

    monkeypatch.setitem(app.HANDLERS, "query.summary", answer)


@pytest.mark.parametrize("lie", [np.nan, np.inf, 7.0, -1.5])
def test_a_summary_that_cannot_be_is_set_aside(small, monkeypatch, lie):
    def change(reply, message):
        reply.content["metrics"]["similarity"] = float(lie)
        return reply

    spoil_summaries(monkeypatch, change)
    result = run_local({**small, "strategy": "cosage"})
    assert {e["client"] for e in events(result, "quarantined")} == {"3"}
    assert all("3" not in e["chosen"] for e in events(result, "selected")[1:])
    assert result.reason == "completed"


def test_who_does_not_answer_keeps_its_age_and_is_not_chosen(small, monkeypatch):
    def change(reply, message):
        return Message(Error(2, "asleep"), reply_to=message)

    spoil_summaries(monkeypatch, change)
    result = run_local({**small, "strategy": "cosage", "seed": 1})
    assert all("3" not in e["chosen"] for e in events(result, "selected")[1:])
    assert result.reason == "completed"


def test_when_nobody_answers_the_oldest_train(small, monkeypatch, said):
    def broken(batch):
        raise RuntimeError("asleep")

    monkeypatch.setitem(app.HANDLERS, "query.summary", broken)
    result = run_local({**small, "strategy": "cosage", "round.give-up-after": 0.1})
    assert result.reason == "completed"
    assert all(event["chosen"] for event in events(result, "selected"))
    assert any("nobody answered; the oldest train" in line for line in said)


@pytest.mark.parametrize("more", [{}, {"summary.mode": "piggyback"}, {"uplink": "top-k"}])
@pytest.mark.parametrize("selector", ["cosage", "power-of-choice", "cluster-oracle", "oort"])
def test_selection_state_survives_a_restart(small, selector, more):
    settings = {**small, "strategy": "cosage", "client-selector": selector, **more}
    whole = run_local({**settings, "num-server-rounds": 6})
    half = run_local({**settings, "num-server-rounds": 3})
    resumed = run_local({**settings, "num-server-rounds": 6, "resume-from": str(half.folder)})
    assert [e["chosen"] for e in events(whole, "selected")] == [
        e["chosen"] for e in events(resumed, "selected")
    ]
    assert whole.rounds[-1]["accuracy"] == resumed.rounds[-1]["accuracy"]
    assert whole.rounds[-1]["loss"] == resumed.rounds[-1]["loss"]


def test_error_feedback_sends_what_was_left_out(small):
    everyone = {**small, "client-selector": "all"}
    plain = run_local({**everyone, "strategy": "cosage"})
    fed = run_local({**everyone, "strategy": "cosage-feedback"})
    assert plain.rounds[1]["loss"] == fed.rounds[1]["loss"]  # nothing is left over in round 1
    assert plain.rounds[2]["loss"] != fed.rounds[2]["loss"]
    assert plain.rounds[2]["bytes-up"] == pytest.approx(fed.rounds[2]["bytes-up"], rel=0.02)


def test_uniform_weights_count_clients_not_samples(small):
    skewed = {**small, "partition": "dirichlet", "client-selector": "all"}
    by_examples = run_local(skewed)
    uniform = run_local({**skewed, "weighting": "uniform"})
    assert by_examples.rounds[-1]["loss"] != uniform.rounds[-1]["loss"]
