"""Clients that gather in cohorts, on the local engine: planted groups are found."""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from sklearn.metrics import adjusted_rand_score

from benchmarks.attacks import fake_affinity
from client_app import app
from server_app.config import ConfigError, read_config
from server_app.local import run_local
from wire.keys import ARRAYS, ASK_UPDATE

GROUPS = 4


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def planted(tmp_path, cache):
    """Five clients in each of four groups whose labels mean different things."""
    return {
        "output-dir": str(tmp_path / "runs"),
        "report": False,
        "round.give-up-after": 5.0,
        "data.cache-dir": cache,
        "num-server-rounds": 9,
        "num-clients": 20,
        "clients-per-round": 20,
        "partition": "iid",
        "local-epochs": 5,
        "groups.kind": "label-permutation",
        "groups.count": GROUPS,
        "cohort.number": GROUPS,
        "cohort.first-clustering": 2,
        "cohort.first-split": 4,
        "cohort.min-participants": 3,
        "evaluate-every": 9,
    }


def events(result, kind):
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == kind]


def cohorts_of(result):
    where = {}
    for event in events(result, "cohorts"):
        where |= event["moved"]
    return where


@pytest.mark.parametrize("rule", ["auxo", "ifca", "cfl", "flexcfl", "fl-hc", "similarity"])
def test_every_rule_finds_planted_groups(planted, rule):
    also = {"similarity": "index-overlap"} if rule == "similarity" else {}
    # CFL splits in two at a time, and only near a common optimum.
    more = {"cohort.mean-norm": 0.7} if rule == "cfl" else {}
    result = run_local({**planted, **also, **more, "cohorts": rule})
    assert result.reason == "completed"
    assert not any(e["failed"] for e in events(result, "exchange"))
    where = cohorts_of(result)
    assert len(where) == 20
    truth = [int(key) % GROUPS for key in where]
    assert adjusted_rand_score(truth, list(where.values())) > 0.9
    models = sorted(path.name for path in result.folder.glob("model-*.safetensors"))
    assert len(models) == GROUPS


def test_without_groups_auxo_does_not_split(planted):
    result = run_local({**planted, "cohorts": "auxo", "groups.kind": "none"})
    assert not events(result, "regrouped")


def test_indices_alone_travel_for_clustering(planted):
    result = run_local(
        {**planted, "cohorts": "similarity", "similarity": "index-overlap", "num-server-rounds": 3}
    )
    assert [e["values-used"] for e in events(result, "cohorts")] == [False] * 3
    asked = {e["kind"] for e in events(result, "exchange")}
    assert asked == {"query.identify", "train"}  # supports rode on training replies


@pytest.mark.parametrize("rule", ["auxo", "similarity", "neighbours"])
def test_a_resumed_run_goes_on_as_if_never_stopped(planted, rule):
    keys = {**planted, "cohorts": rule, "local-epochs": 2, "clients-per-round": 10}
    if rule != "auxo":
        keys["similarity"] = "index-overlap"
    whole = run_local({**keys, "num-server-rounds": 7, "run-name": "whole"})
    part = run_local({**keys, "num-server-rounds": 5, "run-name": "part"})
    resumed = run_local({**keys, "num-server-rounds": 7, "resume-from": str(part.folder)})
    models = ["model.safetensors", *(p.name for p in whole.folder.glob("model-*.safetensors"))]
    for name in models:
        assert (resumed.folder / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.parametrize("similarity", ["index-overlap", "cosine", "euclidean", "oracle"])
def test_neighbours_by_wire(planted, similarity):
    result = run_local(
        {
            **planted,
            "cohorts": "neighbours",
            "similarity": similarity,
            "num-server-rounds": 3,
            "ios.neighbours": 4,
            "local.check-wire": True,
        }
    )
    graph = events(result, "neighbours")[-1]["graph"]
    assert set(graph) == {str(i) for i in range(20)}
    assert all(len(near) == 5 and key in near for key, near in graph.items())
    if similarity in ("index-overlap", "cosine"):
        own = [
            sum(int(n) % GROUPS == int(key) % GROUPS for n in near) for key, near in graph.items()
        ]
        assert sum(own) / 20 > 3  # of the five, itself included


def test_clients_spread_out_by_their_signatures(planted):
    keys = {
        "client-selector": "support-diversity",
        "clients-per-round": 4,
        "local.check-wire": True,
    }
    result = run_local({**planted, **keys, "num-server-rounds": 8})
    assert not events(result, "quarantined")
    chosen = [e["chosen"] for e in events(result, "selected")]
    assert len({key for round_ in chosen[:5] for key in round_}) == 20  # the unknown come first
    groups = [len({int(key) % GROUPS for key in round_}) for round_ in chosen[5:]]
    assert min(groups) >= 3


@pytest.mark.parametrize("privacy", ["local-dp", "central-dp"])
def test_privacy_is_accounted_for(planted, privacy):
    keys = {"privacy": privacy, "dp.noise-multiplier": 2.0, "num-server-rounds": 3}
    result = run_local({**planted, **keys, "uplink": "top-k"})
    spent = [e["epsilon-most"] for e in events(result, "privacy")]
    assert len(spent) == 3
    assert 0 < spent[0] < spent[1] < spent[2] < 20


def test_what_is_not_private_is_refused():
    with pytest.raises(ConfigError, match="local-dp"):
        read_config({"privacy": "local-dp", "objective": "scaffold"})


def test_fine_tuning_before_evaluation_helps(planted):
    keys = {"data.client-test-share": 0.2, "fraction-evaluate": 1.0}
    plain = run_local({**planted, **keys})
    tuned = run_local({**planted, **keys, "personalise.epochs": 10})
    accuracies = [
        [e for e in events(result, "evaluated") if e["where"] == "clients"][-1]["accuracy-mean"]
        for result in (plain, tuned)
    ]
    assert accuracies[1] > accuracies[0] + 0.2


@pytest.mark.parametrize("lie", ["nan", "bomb", "rubbish", "other names", "nothing"])
@pytest.mark.parametrize(
    "rule",
    [
        {"cohorts": "fl-hc", "cohort.first-split": 2},
        {"cohorts": "flexcfl"},
        {"cohorts": "similarity", "similarity": "cosine", "ios.first-round": 2},
    ],
    ids=lambda rule: rule["cohorts"],
)
def test_an_update_that_was_asked_for_and_is_none(planted, monkeypatch, rule, lie):
    """It is not compared, and the others are: nothing that was sent is trusted."""
    honest = app.HANDLERS[ASK_UPDATE]
    bomb = b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999,), }"
    forged = b"\x93NUMPY\x01\x00" + len(bomb).to_bytes(2, "little") + bomb

    def spoilt(record):
        name, array = next(iter(record.items()))
        wrong = {
            "nan": Array(np.full(array.shape, np.nan, np.float32)),
            "bomb": Array(array.dtype, array.shape, array.stype, forged),
            "rubbish": Array(array.dtype, array.shape, array.stype, b"PK\x03\x04rubbish"),
        }
        if lie == "nothing":
            return ArrayRecord()
        if lie == "other names":
            return ArrayRecord({"x" + n: a for n, a in record.items()})
        return ArrayRecord({**record, name: wrong[lie]})

    def handler(messages, contexts):
        replies = honest(messages, contexts)
        for reply, context in zip(replies, contexts, strict=True):
            if context.node_config["partition-id"] == 3:
                reply.content[ARRAYS] = spoilt(reply.content[ARRAYS])
        return replies

    monkeypatch.setitem(app.HANDLERS, ASK_UPDATE, handler)
    more = {"num-server-rounds": 3, "local-epochs": 1, "round.give-up-after": 0.01}
    result = run_local({**planted, **rule, **more})
    assert result.reason == "completed"
    assert len(cohorts_of(result)) == 20


def test_who_fakes_its_affinity_is_barred_and_nobody_else(planted):
    """Every fifth client claims to fit where it does not; one of them is right by chance."""
    with fake_affinity():
        result = run_local({**planted, "cohorts": "auxo", "num-server-rounds": 5})
    barred = {key for event in events(result, "cohorts") for key in event["barred"]}
    assert barred == {"5", "10", "15"}
    honest = run_local({**planted, "cohorts": "auxo", "num-server-rounds": 5})
    assert not any(event["barred"] for event in events(honest, "cohorts"))
